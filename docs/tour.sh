#!/bin/sh
# Two agent sessions exchange a message, and the hub between them is killed.
#
#   sh docs/tour.sh [DIRECTORY THAT HOLDS THE intercom COMMAND]
#
# Everything happens in a temporary directory of its own. It is removed at the end,
# and so is the hub that the first command starts.
set -eu

if [ $# -gt 0 ]; then PATH=$(cd "$1" && pwd):$PATH; fi
if ! command -v intercom >/dev/null; then
    echo "tour.sh: no command 'intercom' here; name its directory: sh docs/tour.sh DIRECTORY" >&2
    exit 1
fi
unset INTERCOM_SESSION INTERCOM_CHANNEL INTERCOM_NO_SPAWN INTERCOM_TRANSPORT
scene=$(mktemp -d "${TMPDIR:-/tmp}/intercom-tour.XXXXXX")
export INTERCOM_DIR="$scene/channels"
export INTERCOM_FORMAT=text # as on a terminal, though this script reads some of it

hub() { sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' "$INTERCOM_DIR/default/hub.lock"; }

finish() {
    status=$?
    trap - EXIT
    kill "${listener:-}" 2>/dev/null || :
    pid=$(hub 2>/dev/null) || :
    if [ -n "$pid" ] && kill "$pid" 2>/dev/null; then
        while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    fi
    rm -rf "$scene"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() { printf '\n%s\n' "$*"; }
in_project() { # PROJECT COMMAND...: show the command as one would type it, and run it
    project=$1
    shift
    printf '  %s $ %s\n' "$project" "$*"
    (cd "$scene/$project" && sh -c "$*" </dev/null)
}

mkdir "$scene/api" "$scene/web"
say "Two projects, each with an agent of its own. Each takes a name; the first command starts the hub."
in_project api "intercom init --name api-agent"
in_project web "intercom init --name web-agent"

say "The agent of web listens."
echo "  web \$ intercom listen --once &"
(cd "$scene/web" && exec intercom listen --once --timeout 30 </dev/null >"$scene/heard") &
listener=$!
tries=0
until grep -q web-agent "$INTERCOM_DIR/default/peers.json"; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then echo "tour.sh: the listener did not come" >&2; exit 1; fi
    sleep 0.1
done

say "The agent of api sends. Its receipt says what is true by now: stored, for one who is live."
in_project api "echo 'The endpoint /orders is ready.' | intercom send --to web-agent"
wait "$listener"
say "And web has heard:"
cat "$scene/heard"

say "Now the hub is killed. The next message starts another, and waits in web's inbox."
echo "  \$ kill -9 $(hub)"
kill -9 "$(hub)"
in_project api "intercom send --to web-agent --text 'Are you still there?'"
in_project web "intercom poll"
say "What was shown is not shown again:"
in_project web "intercom poll"

say "That was all. The hub of this tour ends now, and its directory is removed."
