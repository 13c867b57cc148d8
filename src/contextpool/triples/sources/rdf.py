"""RDF as triples: N-Triples, Turtle, N-Quads, TriG and RDF/XML, read by pyoxigraph.

A label is the IRI, shortened by the file's own prefixes and by those that are given (`Shortener`). Literals are
left out or kept as `"text"@en`, `"7"^^xsd:integer`, tabs and line ends escaped. Blank nodes keep the name that the
file gives them (`_:b0`); those without one are numbered as they appear (`_:g1`). Of named graphs all are read, or one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import pyarrow as pa

from contextpool.errors import (
    ConfigError,
    DataError,
    MissingExtraError,
    TripleFileError,
    UnknownNameError,
    shortened,
)
from contextpool.triples.files import MAX_LINE, open_bytes, readable
from contextpool.triples.labels import ROLES, problem_in_role
from contextpool.triples.sources.address import Address, check_options, choice, need_file, yes_or_no
from contextpool.triples.sources.columns import BATCH_ROWS

Tell = Callable[[str], None]
OPTIONS = ("literals", "blank", "graph", "prefixes", "shorten", "base")
XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"
_FORMATS = {
    "ntriples": "N_TRIPLES",
    "turtle": "TURTLE",
    "nquads": "N_QUADS",
    "trig": "TRIG",
    "rdfxml": "RDF_XML",
}
_DECLARED_WITHIN = 1 << 16
"""Bytes at the beginning of a file of RDF/XML in which entities may be declared."""
_DEEPEST = 10_000
_ENTITY = re.compile(rb"<!ENTITY\s+[\w.:-]+\s+\"[^\"&%<]{0,256}\"\s*>")
_NAMELESS = re.compile(r"_:[a-f][0-9a-f]{23,31}")
"""The random name that the parser gives to a blank node without one."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\u0000"}
_PREFIX_NAME = re.compile(r"[^\W\d_][\w.-]*|")
_ESCAPED = re.compile(r'[\\"\n\r\t\0]')


@dataclass(frozen=True)
class RdfOptions:
    """What to make of a file."""

    literals: str = "drop"
    """`drop` leaves facts out whose object is a literal; `keep` makes each distinct literal an entity, `text` each
    distinct text, whatever its language or type.
    """
    blank: str = "keep"
    """`drop` leaves facts out that name a blank node."""
    graph: str = "all"
    """Which graphs of N-Quads and TriG to read: `all` as one, the `default` graph alone, or one by its IRI."""
    prefixes: dict[str, str] = field(default_factory=dict)
    """Short names beside those that the file declares; they win over its own."""
    shorten: bool = True
    """Whether to shorten IRIs at all."""
    base: str | None = None
    """What relative IRIs are relative to."""

    @classmethod
    def of(cls, address: Address) -> RdfOptions:
        check_options(address, OPTIONS)
        return cls.of_terms(address)

    @classmethod
    def of_terms(cls, address: Address, blank: str = "keep") -> RdfOptions:
        """The options, of which others than a file's may be there, too."""
        return cls(
            choice(address, "literals", "drop", ("drop", "keep", "text")),
            choice(address, "blank", blank, ("keep", "drop")),
            str(address.options.get("graph", "all")),
            checked_prefixes(address.options.get("prefixes"), address.text),
            yes_or_no(address, "shorten", True),
            address.options.get("base"),
        )


def rdf_batches(address: Address, tell: Tell) -> Iterator[pa.RecordBatch]:
    """The facts of an RDF file, plain, .gz or .zst; `tell` hears what was left out. O(bytes) time.

    The facts are held as numbers until the end of the file, because a prefix or a name there may change a label.
    """
    options, path = RdfOptions.of(address), need_file(address)
    oxigraph = oxigraph_package()
    terms = Terms(options, oxigraph, address.place)
    try:
        with readable(path), open_bytes(path) as stream:
            form = getattr(oxigraph.RdfFormat, _FORMATS[address.kind])
            checked = _Checked(stream, address)
            parser = oxigraph.parse(checked, form, base_iri=options.base)
            terms.add(checked.noted(parser))
            declared = parser.prefixes
    except SyntaxError as error:
        raise TripleFileError(address.place, error.lineno or 1, _syntax_problem(address, error)) from None
    except DataError:
        raise
    except MemoryError:  # the parser's own limit of what it holds before a fact ends
        raise DataError(
            f"{address.place}: a term is longer than any label may be. Is this {address.kind}?"
        ) from None
    except ValueError as error:
        raise DataError(f"{address.place}: the file cannot be read to its end ({error}).") from None
    terms.check_graph(address)
    yield from term_batches(terms, declared, options, address, tell)


class _Checked:
    """A stream for the parser that soon gives a fact, and holds no entities of XML that unfold to more.

    What a parser holds before a fact ends, such as brackets that nobody closes, may take a hundred times its size.
    OWL files declare namespaces as entities, at their beginning; those are short and hold no other entity.
    """

    def __init__(self, stream: IO[bytes], address: Address) -> None:
        self._stream, self._address = stream, address
        self._is_xml = address.kind == "rdfxml"
        self._head, self._tail, self._cut = b"", b"", b""
        self._since_fact = self._depth = 0
        if self._is_xml:
            self._head = stream.read(_DECLARED_WITHIN)
            self._refuse_entities(_ENTITY.sub(b" ", self._head))

    def noted(self, quads: Iterable[Any]) -> Iterator[Any]:
        """What the parser gives, noticed."""
        for quad in quads:
            self._since_fact = 0
            yield quad

    def read(self, size: int = 1 << 16) -> bytes:
        block, self._head = self._head[:size], self._head[size:]
        if not block:
            block = self._stream.read(size)
            if self._is_xml:
                self._refuse_entities(self._tail + block)
                self._tail = (self._tail + block)[-len(b"<!ENTITY") + 1 :]
        if self._is_xml:
            self._refuse_depth(block)
        self._since_fact += len(block)
        if self._since_fact > MAX_LINE:
            raise DataError(
                f"{self._address.place}: {MAX_LINE:,} bytes without a whole fact. Is this {self._address.kind}, and "
                "is every quote and bracket closed?"
            )
        return block

    def _refuse_depth(self, block: bytes) -> None:
        """Elements that are open, nearly: the parser takes longer for each the more there are."""
        data = self._cut + block
        self._cut = data[-1:] if data.endswith((b"<", b"/")) else b""  # half of a sign
        data = data.removesuffix(self._cut)
        self._depth += data.count(b"<") - 2 * data.count(b"</") - data.count(b"/>") - data.count(b"<!")
        if self._depth > _DEEPEST:
            raise DataError(f"{self._address.place}: more than {_DEEPEST:,} elements lie within one another.")

    def _refuse_entities(self, data: bytes) -> None:
        if b"<!ENTITY" in data:
            raise DataError(
                f"{self._address.place}: it declares an entity that is long, holds other entities or names a file. "
                "Unfolded it could be of any size. Write it out, or convert the file to Turtle where it comes from."
            )


def term_batches(
    terms: Terms, declared: Mapping[str, str], options: RdfOptions, address: Address, tell: Tell
) -> Iterator[pa.RecordBatch]:
    """The facts by their labels, shortened by the prefixes that were declared and given."""
    _tell_left_out(terms, tell)
    shortener = Shortener(merged(declared, options.prefixes) if options.shorten else {})
    entities, relations = _labels(terms, shortener, address)
    ids = np.array(terms.ids, dtype=np.int32).reshape(-1, 3)
    for low in range(0, len(ids), BATCH_ROWS):
        some = ids[low : low + BATCH_ROWS]
        columns = [
            labels.take(pa.array(some[:, k])) for k, labels in enumerate((entities, relations, entities))
        ]
        yield pa.RecordBatch.from_arrays(columns, names=list(ROLES))


def oxigraph_package(purpose: str = "reading RDF") -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtraError("pyoxigraph", "rdf", purpose) from None
    return pyoxigraph


def _syntax_problem(address: Address, error: SyntaxError) -> str:
    said = re.sub(r"^Parser error at line \d+ column (\d+): ", r"column \1: ", str(error.args[0]))
    hint = " Give what relative IRIs are relative to, with base=IRI." if "scheme" in said.lower() else ""
    return f"this is not {address.kind} ({said}).{hint} Mend the line, or name another format=."


class Terms:
    """Facts as numbers of terms; a term is known by a spelling that says its kind: `_:...`, `"...`, or an IRI."""

    def __init__(self, options: RdfOptions, oxigraph: Any, place: str) -> None:
        self.options = options
        self.place = place
        self.entity_ids: dict[str, int] = {}
        self.relation_ids: dict[str, int] = {}
        self.datatypes: dict[str, str] = {}
        """The datatype's IRI of each literal, by its spelling."""
        self.graphs: set[str] = set()
        self.ids: list[int] = []
        self.dropped = {"literals": 0, "blank": 0}
        self._iri, self._blank, self._literal = oxigraph.NamedNode, oxigraph.BlankNode, oxigraph.Literal
        self._default = oxigraph.DefaultGraph

    def add(self, quads: Any) -> None:
        for quad in self._of_graph(quads):
            self.add_fact(quad.subject, quad.predicate, quad.object)

    def add_fact(self, subject: Any, predicate: Any, obj: Any) -> None:
        """One fact by its terms, unless an option leaves it out."""
        entities, relations, ids = self.entity_ids, self.relation_ids, self.ids
        head, tail = self._spelling(subject), self._spelling(obj)
        if head is None or tail is None:
            return
        relation = predicate.value if isinstance(predicate, self._iri) else self._relation_text(predicate)
        ids.append(entities.setdefault(head, len(entities)))
        ids.append(relations.setdefault(relation, len(relations)))
        ids.append(entities.setdefault(tail, len(entities)))

    def _relation_text(self, term: Any) -> str:
        """A relation that is no IRI, which only a query can give."""
        if isinstance(term, self._literal) and self.options.literals == "text":
            return _plain(term.value)
        raise DataError(
            f"{self.place}: the relation {shortened(str(term))} is no IRI. Let the query give the property, or with "
            "literals=text its name."
        )

    def _of_graph(self, quads: Any) -> Iterator[Any]:
        wanted = self.options.graph
        for quad in quads:
            graph = quad.graph_name
            name = "default" if isinstance(graph, self._default) else str(graph.value)
            self.graphs.add(name)
            if wanted in ("all", name):
                yield quad

    def _spelling(self, term: Any) -> str | None:
        """None for a term that is left out, counted."""
        if isinstance(term, self._iri):
            return str(term.value)
        if isinstance(term, self._blank):
            if self.options.blank == "keep":
                return f"_:{term.value}"
            self.dropped["blank"] += 1
            return None
        if not isinstance(term, self._literal):
            raise DataError(
                f"{self.place}: the fact about {str(term)[:120]} is a statement about a statement (RDF 1.2), "
                "which a triple cannot hold. Rewrite it with an entity for the inner statement."
            )
        if self.options.literals == "keep":
            return self._literal_spelling(term)
        if self.options.literals == "text":
            return _plain(term.value)
        self.dropped["literals"] += 1
        return None

    def _literal_spelling(self, literal: Any) -> str:
        text = _ESCAPED.sub(lambda found: _ESCAPES[found[0]], literal.value)
        if literal.language:
            direction = getattr(literal, "direction", None)
            return f'"{text}"@{literal.language}' + (f"--{direction}" if direction else "")
        datatype = literal.datatype.value
        if datatype == XSD_STRING:
            return f'"{text}"'
        spelling = f'"{text}"^^{datatype}'
        self.datatypes[spelling] = datatype
        return spelling

    def check_graph(self, address: Address) -> None:
        """Refuse a graph that the file does not have, and a file that leaves nothing."""
        wanted = self.options.graph
        if wanted != "all" and wanted not in self.graphs:
            raise UnknownNameError(
                "graph", wanted, sorted(self.graphs), f"{address.text}: graphs are named by their full IRI."
            )
        if not self.ids:
            gone = self.dropped["literals"]
            why = f" {gone:,} facts about literals were left out; literals=keep keeps them." if gone else ""
            raise DataError(f"{address.text}: no facts.{why}")


def _plain(text: str) -> str:
    """A literal's text as a label: white space made even, and an empty one as it is written."""
    return " ".join(text.replace("\0", " ").split()) or '""'


def _tell_left_out(terms: Terms, tell: Tell) -> None:
    kept = len(terms.ids) // 3
    for kind, what in (("literals", "have a literal as their object"), ("blank", "name a blank node")):
        if terms.dropped[kind]:
            tell(
                f"left out {terms.dropped[kind]:,} facts that {what} ({kind}=keep keeps them); {kept:,} stay"
            )


def _labels(terms: Terms, shortener: Shortener, address: Address) -> tuple[pa.StringArray, pa.StringArray]:
    """The labels of entities and of relations by number: IRIs shortened, nameless blank nodes numbered."""
    iris = [spelling for spelling in terms.entity_ids if spelling[:1] != '"' and spelling[:2] != "_:"]
    short = shortener.labels({*iris, *terms.relation_ids, *terms.datatypes.values()})
    blank = _blank_labels(terms.entity_ids)

    def label(spelling: str) -> str:
        datatype = terms.datatypes.get(spelling)
        if datatype is not None:
            return f"{spelling.removesuffix(datatype)}{short[datatype]}"
        return short.get(spelling) or blank.get(spelling, spelling)

    entities, relations = list(map(label, terms.entity_ids)), [short[iri] for iri in terms.relation_ids]
    assert len(set(entities)) == len(entities), "two terms have one label"
    for role, labels in (("entity", entities), ("relation", relations)):
        for name in labels:
            problem = problem_in_role(name, role)
            if problem:
                raise DataError(f"{address.place}: the term {shortened(name)} {problem}. Rename it.")
    return pa.array(entities, pa.string()), pa.array(relations, pa.string())


def _blank_labels(spellings: dict[str, int]) -> dict[str, str]:
    """Numbers for nameless blank nodes, in the order in which they appear; a name of the file is never taken."""
    labels: dict[str, str] = {}
    number = 0
    for spelling in spellings:
        if _NAMELESS.fullmatch(spelling):
            number += 1
            while f"_:g{number}" in spellings:
                number += 1
            labels[spelling] = f"_:g{number}"
    return labels


class Shortener:
    """`namespace + rest` becomes `prefix:rest`, by the longest namespace that fits.

    A prefix names one namespace and holds no colon, so short names differ where their IRIs do. What is left is an IRI
    that is spelled like another one's short name (`ex:a` beside `http://ex.org/a`): then the full IRI is kept. Of
    several prefixes for one namespace the first in sorted order is taken.
    """

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        by_namespace: dict[str, str] = {}
        for name in sorted(prefixes, reverse=True):
            by_namespace[prefixes[name]] = name
        by_namespace.pop("", None)
        self._by_namespace = by_namespace
        self._lengths = sorted({len(namespace) for namespace in by_namespace}, reverse=True)

    def short(self, iri: str) -> str:
        """The short name, or the IRI itself where no namespace fits. O(distinct lengths of namespaces)."""
        for length in self._lengths:
            name = self._by_namespace.get(iri[:length])
            if name is not None and len(iri) >= length:
                return f"{name}:{iri[length:]}"
        return iri

    def labels(self, iris: Collection[str]) -> dict[str, str]:
        """The label of each IRI; no two are equal."""
        taken = frozenset(iris)
        labels = {}
        for iri in iris:
            short = self.short(iri)
            labels[iri] = iri if short in taken else short
        return labels


def checked_prefixes(given: Any, text: str) -> dict[str, str]:
    """Prefixes that the caller gives: names without a colon, and IRIs."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{text}: prefixes is {given!r}; it is a mapping of names to IRIs.")
    for name, namespace in given.items():
        if not isinstance(name, str) or not _PREFIX_NAME.fullmatch(name):
            raise ConfigError(
                f"{text}: prefix {name!r} is no name: letters, digits, '.', '-' and '_', a letter first."
            )
        if not isinstance(namespace, str) or ":" not in namespace:
            raise ConfigError(
                f"{text}: prefix {name!r} stands for {namespace!r}, which is no IRI, such as http://ex.org/."
            )
    return dict(given)


def merged(declared: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Declared and given prefixes. A given one wins: over a declared one of its name, and for its namespace."""
    namespaces = set(given.values())
    kept: Iterable[tuple[str, str]] = (
        (name, namespace)
        for name, namespace in declared.items()
        if name not in given and namespace not in namespaces
    )
    return {**dict(kept), **given}
