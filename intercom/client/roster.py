"""The names that projects are given: people and machines known for carrying messages.

Data, and two ways to look at it. A session's id is the slug; name, title and ship (or
place) are for people. Standard library only.
"""

from __future__ import annotations

from intercom.hashes import sha256
from intercom.tuples import NamedTuple


class Persona(NamedTuple):
    """Somebody whose name a session may carry.

    :ivar slug: the session id.
    :ivar ship: ship or place.
    """

    slug: str
    name: str
    title: str
    ship: str


ROSTER = (
    # of fiction
    Persona("nyota-uhura", "Nyota Uhura", "communications officer", "USS Enterprise"),
    Persona("hoshi-sato", "Hoshi Sato", "communications officer and linguist", "Enterprise NX-01"),
    Persona("seven-of-nine", "Seven of Nine", "astrometrics officer, once a drone", "USS Voyager"),
    Persona("harry-kim", "Harry Kim", "operations officer", "USS Voyager"),
    Persona("mister-data", "Data", "android and operations officer", "USS Enterprise-D"),
    Persona(
        "anastasia-dualla", "Anastasia Dualla", "communications officer", "Battlestar Galactica"
    ),
    Persona("susan-ivanova", "Susan Ivanova", "executive officer", "Babylon 5"),
    Persona("walter-harriman", "Walter Harriman", "gate technician", "Stargate Command"),
    Persona("c-3po", "C-3PO", "protocol droid", "Tantive IV"),
    Persona("r2-d2", "R2-D2", "astromech droid", "Tantive IV"),
    Persona("hal-9000", "HAL 9000", "ship's computer", "Discovery One"),
    Persona("mu-th-ur-6000", "MU-TH-UR 6000", "ship's computer", "USCSS Nostromo"),
    Persona("holly", "Holly", "ship's computer", "Red Dwarf"),
    Persona("eddie", "Eddie", "shipboard computer", "Heart of Gold"),
    Persona("marvin", "Marvin", "paranoid android", "Heart of Gold"),
    Persona("tars", "TARS", "crew robot", "Endurance"),
    Persona("gerty", "GERTY", "base computer", "Sarang lunar base"),
    Persona("mycroft", "Mycroft", "computer who became a revolutionary", "Luna"),
    Persona("wopr", "WOPR", "war-game computer", "NORAD, Cheyenne Mountain"),
    Persona("kitt", "KITT", "talking car", "Foundation for Law and Government"),
    # of history
    Persona("ada-lovelace", "Ada Lovelace", "author of the first published program", "London"),
    Persona("grace-hopper", "Grace Hopper", "rear admiral, maker of compilers", "Harvard Mark I"),
    Persona("hedy-lamarr", "Hedy Lamarr", "co-inventor of frequency hopping", "Hollywood"),
    Persona("alan-turing", "Alan Turing", "codebreaker", "Hut 8, Bletchley Park"),
    Persona("joan-clarke", "Joan Clarke", "codebreaker", "Hut 8, Bletchley Park"),
    Persona("tommy-flowers", "Tommy Flowers", "builder of Colossus", "Dollis Hill"),
    Persona("joseph-rochefort", "Joseph Rochefort", "codebreaker", "Station HYPO, Pearl Harbor"),
    Persona("elizebeth-friedman", "Elizebeth Friedman", "cryptanalyst", "US Coast Guard"),
    Persona("noor-inayat-khan", "Noor Inayat Khan", "wireless operator", "occupied Paris"),
    Persona("jack-phillips", "Jack Phillips", "senior wireless operator", "RMS Titanic"),
    Persona("harold-bride", "Harold Bride", "junior wireless operator", "RMS Titanic"),
    Persona("harold-cottam", "Harold Cottam", "wireless operator", "RMS Carpathia"),
    Persona("jack-binns", "Jack Binns", "wireless operator", "RMS Republic"),
    Persona("guglielmo-marconi", "Guglielmo Marconi", "radio pioneer", "yacht Elettra"),
    Persona("alfred-vail", "Alfred Vail", "telegraph pioneer", "Speedwell Ironworks"),
    Persona("katherine-johnson", "Katherine Johnson", "mathematician of orbits", "NASA Langley"),
    Persona("dorothy-vaughan", "Dorothy Vaughan", "head of the computers", "NACA Langley"),
    Persona("margaret-hamilton", "Margaret Hamilton", "director of Apollo flight software", "MIT"),
    Persona("charlie-duke", "Charlie Duke", "capsule communicator", "Mission Control, Houston"),
    Persona("radia-perlman", "Radia Perlman", "inventor of the spanning tree", "DEC"),
    Persona("kathleen-booth", "Kathleen Booth", "author of an early assembler", "Birkbeck"),
    Persona("jean-bartik", "Jean Bartik", "programmer of the ENIAC", "Moore School, Philadelphia"),
    Persona("konrad-zuse", "Konrad Zuse", "builder of the Z3", "Berlin"),
)

_HEX = "0123456789abcdef"
_BY_SLUG = {persona.slug: persona for persona in ROSTER}


def persona(session: str) -> Persona:
    """Who carries this id; one that is not of the roster has neither title nor ship.

    What is appended to an id that was taken (``-2``, ``-7f3a``) makes nobody else of it.
    """
    found = _BY_SLUG.get(session)
    stem, _, suffix = session.rpartition("-")
    if found is None and (_is_number(suffix) or (len(suffix) == 4 and not suffix.strip(_HEX))):
        found = _BY_SLUG.get(stem)
    return found._replace(slug=session) if found else Persona(session, session, "", "")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def drawn_for(place: str) -> list[str]:
    """All ids, in an order that begins somewhere else for each place, and always there.

    So projects seldom want the same name, on one machine or on several.
    """
    start = int.from_bytes(sha256(place.encode("utf-8", "surrogateescape")).digest()[:8])
    start %= len(ROSTER)
    return [one.slug for one in ROSTER[start:] + ROSTER[:start]]
