"""The fast path for runs of passing cases gives exactly the results of the parser."""

from __future__ import annotations

import io
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.checks.formats import Parsed, junit
from ratchet.checks.formats.junit import fast_path
from ratchet.checks.formats.junit.document import JUnitDocument
from ratchet.checks.formats.junit.elements import Child
from ratchet.checks.formats.xml import XmlReader


def slowly(document: bytes) -> Parsed:
    handler = JUnitDocument()
    reader = XmlReader(handler)
    reader.read(io.BytesIO(document))
    return handler.parsed(reader.fault)


class Dripping(io.BytesIO):
    """Gives a little at a time, so that cases are torn anywhere."""

    step = 1 << 20

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.step)


def case(number: int, group: str = "a.b.CTest") -> str:
    return f'<testcase name="does_{number}" classname="{group}" time="0.0{number}"/>\n'


PLAIN = "".join(case(number) for number in range(20))
ODD = [
    '<testcase name="a &lt; b" classname="a.b.CTest" time="1"/>',
    '<testcase name="two\nlines" classname="a.b.CTest" time="1"/>',
    '<testcase name="" classname="a.b.CTest" time="1"/>',
    '<testcase name=" time=" classname=" name=" time="1"/>',
    '<testcase classname="a.b.CTest" name="turned" time="1"/>',
    '<testcase name="late" classname="a.b.CTest" time="nan"/>',
    '<testcase name="late" classname="a.b.CTest" time="1,234.5"/>',
    '<testcase name="late" classname="a.b.CTest" time="-1"/>',
    "<testcase name='quoted' classname='a.b.CTest' time='1'/>",
    '<testcase name="more" classname="a.b.CTest" time="1" file="x.java"/>',
    '<testcase name="fails" classname="a.b.CTest" time="1"><failure message="no">at a.b</failure></testcase>',
    '<testcase name="skips" classname="a.b.CTest" time="1"><skipped/></testcase>',
    f'<testcase name="talks" classname="a.b.CTest" time="1"><system-out><![CDATA[{PLAIN}]]></system-out></testcase>',
    '<testcase name="twice" classname="a.b.CTest" time="1" name="twice"/>',
    '<testcase name="a < b" classname="a.b.CTest" time="1"/>',
    '<testcase name="a" classname="b" time="1"><failure message="&amp;lt; &#10;\tc" type="X">\r\n</failure></testcase>',
    '<testcase name="a" time="1"><error message=">">\n<![CDATA[<b> &amp;]]>\n</error><system-err/></testcase>',
    '<testcase name="a" status="notrun" time="1" classname="G"/>' * 4,
    '<testcase name="a" classname="G" file="x.py" line="3" time="1"></testcase>\n' * 4,
    '<testcase name="around" classname="G" time="1"><testcase name="inside" classname="G" time="1"/></testcase>',
    '<testcase name="a" classname="G" time="1"><properties><property name="java.x"/></properties></testcase>',
    '<testcase name="a" classname="G" time="1"><failure>&#65534;</failure></testcase>',
    '<testcase name="a \ufffe b" classname="G" time="1"><failure>\uffff</failure></testcase>',
    "</testsuite>",
    *(
        f'<testcase name="says" classname="a.b.CTest" time="1">{text}</testcase>\n' * 4
        for text in (
            '<system-out>he said "no"</system-out>\n<system-err><![CDATA[<a> ]] &x;]]></system-err>',
            "<system-out>&nbsp;</system-out>",
            "<system-out>&#27;[31m &#11;</system-out>",
            "<system-out>&#9;&#55295; &#x41;</system-out><system-err>a ] b &amp; c</system-err>",
            "<system-out>a<![CDATA[ & b]]>&gt;<![CDATA[c]]></system-out>",
            "<system-out><![CDATA[a]]></system-out><failure>no</failure>",
            "\n  <skipped />\n  <system-out>b</system-out>\n",
            "<skipped><![CDATA[a </testcase> b]]></skipped>",
            '<skipped message="todo"/></testcase> loose <testcase name="b"><skipped message="todo"/>',
            '<skipped message="Required Files Missing"/>',
            "<failure>T::says\nat a.b</failure>",
            "<error/>",
            "<failure></testcase>",
            "<failure/></failure>",
            "<system-out>a ]]> b</system-out>",
            "<system-out>a &lt; b</system-out><failure>no</failure>",
            "<system-out>one</system-err>",
            "loose text",
        )
    ),
    f"<!-- {PLAIN} -->",
    f"<system-out>{PLAIN}</system-out>",
    "some text & more",
    "</testsuite><testsuite name='other' file='x.py'>",
    '</testsuite>\n<testsuite name="beside" tests="3" file="./y.py">\n',
    '<system-out/></testsuite><testsuite name="beside"><properties/>',
    '</testsuite></testsuite><testsuite name="out"><testsuite name="in" tests="1">',
    '<testsuite name="deeper" tests="2">',
    "</testsuite>\n</testsuite>\n",
    '<system-out>all &lt; of it</system-out></testsuite><testsuite name="java">'
    '<properties>\n<property name="java.version" value="21"/>\n<property name="b" value="c" /></properties>',
    '</testsuite><testsuite name="pytest"><properties><property name="a" value="&amp;"/></properties>',
    '</testsuite><testsuite name="vitest" name="vitest">',
    '<testcase name="a" classname="G" time="1"><properties><property name="a" value="b"/></properties></testcase>' * 3,
    '<testcase name="a" classname="G" time="1"><properties><property name="a" name="b"/></properties></testcase>' * 3,
    '<testcase name="disabled" classname="G" time="1" status="run" result="suppressed"/>' * 3,
    '<testcase name="t" classname="t" time="1" status="fail"/>' * 3,
    '<testcase name="t" classname="x.c" time="1" line="7" lineno="8"/>' * 3,
    '<testcase name="t" classname="" time="1" file="./a/b.py" line="7"/>' * 3,
    '<testcase name="skips" classname="a.b.CTest" time="1"><skipped message="a &lt; b"/></testcase>\n' * 3,
    '<testcase name="skips" classname="a.b.CTest" time="1"><skipped type="pytest.xfail" message=""/></testcase>\n' * 3,
    '<testcase name="skips" classname="a.b.CTest" time="1"><skipped>x.py:3: why</skipped></testcase>\n' * 3,
    "<stranger>",
    "</stranger>",
    "\0\x1b[31m",
    "é" * 50,
]
PIECES = st.one_of(st.sampled_from(ODD), st.builds(case, st.integers(0, 9), st.sampled_from(["a.b.CTest", "D", ""])))


@given(
    st.sampled_from(["s", "pytest", "vitest", "jest tests", "rspec"]),
    st.lists(st.one_of(PIECES, st.just(PLAIN)), max_size=8),
    st.integers(7, 3000),
    st.integers(0, 60),
)
@settings(max_examples=int(os.environ.get("RATCHET_DOCUMENTS", "300")))
def test_the_lane_and_the_parser_agree_about_every_document(
    suite: str, pieces: list[str], step: int, torn: int
) -> None:
    inside = f'<testsuite name="outer"><testsuite name="{suite}" tests="9">{"".join(pieces)}</testsuite></testsuite>'
    document = f"<testsuites>{inside}</testsuites>".encode()
    stream = Dripping(document[: len(document) - torn])
    stream.step = step
    assert junit.parse(stream) == slowly(document[: len(document) - torn])


@pytest.mark.parametrize("step", range(1, 12))
def test_a_reference_torn_between_two_reads_is_still_one_in_a_malformed_document(step: int) -> None:
    stream = Dripping(
        b"<testsuite>&<testcase name='t'><failure>a &lt; b &#x26; c &amp</failure></testcase></testsuite>"
    )
    stream.step = step
    (found,) = junit.parse(stream).tests
    assert found.failure is not None
    assert found.failure.message == "a < b & c &amp"


def names(run: fast_path.Run | None) -> list[str]:
    """Of all cases of the run but the first, which the parser hears."""
    return together(run).columns["name"]


def together(run: fast_path.Run | None) -> fast_path.SimilarCases:
    assert run is not None
    assert run.alike is not None
    return run.alike


@pytest.mark.parametrize("keys", ["name classname time", "classname name file line time", "time name classname"])
@pytest.mark.parametrize("end", ["/>", " />\n  ", "></testcase>\r\n\t"])
def test_common_writers_go_down_the_lane_in_columns(keys: str, end: str) -> None:
    cases = "".join(
        "<testcase {}{}".format(" ".join(f'{key}="{key} {number}"' for key in keys.split()), end)
        for number in range(30)
    )
    run = fast_path.Chunk(f"<testsuite>{cases}</testsuite>".encode()).find(0)
    assert together(run).columns == {key: [f"{key} {number}" for number in range(1, 30)] for key in keys.split()}


def test_what_passing_tests_printed_keeps_them_in_the_lane_and_is_dropped() -> None:
    text = '<system-out><![CDATA[a "quoted" <testcase name=]]></system-out>\n'
    talking = case(1).replace("/>", f">{text}</testcase>")
    run = fast_path.Chunk((case(0) + talking + case(2) + talking).encode() + b"</testsuite>").find(0)
    assert names(run) == ["does_1", "does_2", "does_1"]
    assert together(run).children_by_case == {}


def test_a_failing_case_stays_in_the_run_with_all_it_says() -> None:
    failing = case(9).replace("/>", '><failure message="a &lt; b">at x\r\n</failure>\n<system-out/></testcase>')
    document = (PLAIN + failing + PLAIN + "</testsuite>").encode()
    run = fast_path.Chunk(document).find(0)
    assert run is not None
    assert run.end == len(document) - len("</testsuite>")
    assert len(names(run)) == 2 * 20
    assert together(run).children_by_case == {
        19: [Child("failure", {"message": "a < b"}, "at x\n"), Child("system-out", {})]
    }


def test_what_many_cases_say_is_read_once() -> None:
    skipped = [f'><skipped message="not {day}"/></testcase>' for day in ("today", "now", "today")]
    cases = "".join(PLAIN + case(9).replace("/>", text) for text in skipped)
    document = f'<testsuite name="a">{cases}</testsuite>'.encode()
    first, other, again = together(fast_path.Chunk(document).find(0)).children_by_case.values()
    assert (first[0].attributes, other[0].attributes) == ({"message": "not today"}, {"message": "not now"})
    assert again is first
    assert [test.reason for test in junit.parse(io.BytesIO(document)).tests if test.reason] == [
        "not today",
        "not now",
        "not today",
    ]


@pytest.mark.parametrize("text", ["<skipped/>", "<failure>no</failure>", "<skipped><![CDATA[</testcase>]]></skipped>"])
@pytest.mark.parametrize("behind", ["", "\n\n  ", "loose", "&amp;", "<!-- a -->", "<stranger/>"])
def test_what_is_known_is_taken_only_where_a_case_ends_with_it(text: str, behind: str) -> None:
    received = case(9).replace("/>", f">{text}</testcase>")
    other = received.replace("</testcase>", "<failure>too</failure></testcase>")
    document = (
        f'<testsuite name="a">{PLAIN}{received}{PLAIN}{received}{other}{received}{behind}{PLAIN}</testsuite>'.encode()
    )
    assert junit.parse(io.BytesIO(document)) == slowly(document)


def suites(between: str) -> bytes:
    head = '<testsuite name="{}" tests="20" file="{}.py">\n'
    cases = "".join(head.format(name, name) + PLAIN + f"{between}</testsuite>\n" for name in "abc")
    return f"<testsuites>{cases}</testsuites>".encode()


@pytest.mark.parametrize("between", ["", "<system-out><![CDATA[]]></system-out>\n<system-err/>"])
def test_suites_that_stand_beside_each_other_are_one_run(between: str) -> None:
    document = suites(between)
    run = fast_path.Chunk(document).find(0)
    assert run is not None
    assert len(names(run)) == 3 * 20 - 1
    assert [(suite.before, suite.attributes["name"]) for suite in together(run).suites] == [(19, "b"), (39, "c")]
    handler = JUnitDocument()
    reader = XmlReader(handler, junit._Lane(handler))
    reader.read(io.BytesIO(document))
    assert reader._skipped == run.end - run.second
    parsed = handler.parsed(reader.fault)
    assert [(test.suite, test.file) for test in parsed.tests[19:21]] == [(["a"], "a.py"), (["b"], "b.py")]
    assert parsed.reported["tests"] == 60
    assert parsed == slowly(document)


def test_suites_whose_cases_are_indented_are_one_run() -> None:
    failing = case(9).replace("/>", ">\n      <failure>no</failure>\n    </testcase>")
    cases = "".join(f"    {line}\n" for line in [*PLAIN.splitlines(), failing.strip(), *PLAIN.splitlines()])
    inside = "".join(f'  <testsuite name="{name}">\n{cases}  </testsuite>\n' for name in "abc")
    document = f"<testsuites>\n{inside}</testsuites>".encode()
    assert len(names(fast_path.Chunk(document).find(0))) == 3 * 41 - 1
    assert junit.parse(io.BytesIO(document)) == slowly(document)


@pytest.mark.parametrize(
    ("root", "around"), [("testsuite", "{}"), ("testsuites", "<stranger>{}</stranger>"), ("stranger", "{}")]
)
def test_the_end_of_a_suite_is_judged_by_the_parser_where_it_may_be_a_fault(root: str, around: str) -> None:
    """Of the root, of a suite in which something else is still open, or below something unknown."""
    other = f'</testsuite><testsuite name="b">{PLAIN}'
    document = f'<{root}><testsuite name="a">{around.format(PLAIN + other)}</testsuite></{root}>'.encode()
    torn = f'<testsuite name="a">{PLAIN}{other}</testsuite>'.encode()
    for each in (document, torn):
        assert junit.parse(io.BytesIO(each)) == slowly(each)


@pytest.mark.parametrize(
    "between",
    [
        '</testsuite></testsuite><testsuite name="p">{}</testsuite><testsuite name="q"><testsuite name="r">',
        '<testsuite name="inside">{}</testsuite>',
        '</testsuite></testsuite><testsuite name="p">{}<testsuite name="q">{}',
    ],
)
def test_a_run_ends_as_deep_as_it_began(between: str) -> None:
    """Else the parser, which does not know the suites in it, would miss some or find too many."""
    inside = f'<testsuite name="a">{PLAIN}{between.format(PLAIN, PLAIN)}{PLAIN}</testsuite>'
    document = f'<testsuites><testsuite name="o">{inside}</testsuite></testsuites>'.encode()
    found = junit.parse(io.BytesIO(document))
    assert not found.partial
    assert found == slowly(document)


def test_java_properties_identify_the_writer_of_a_document_wherever_they_stand() -> None:
    property_ = '<properties><property name="java.version" value="21"/></properties>'
    plain = "".join(case(number, "D") for number in range(20))
    received = case(1, "D").replace("/>", f">{property_}</testcase>", 1)
    for cases in (plain + received + plain, f'{plain}</testsuite><testsuite name="b">{property_}{plain}'):
        document = f'<testsuites><testsuite name="a">{cases}</testsuite></testsuites>'.encode()
        found = junit.parse(io.BytesIO(document))
        assert (found.tests[0].id, found.tests[-1].id) == ("D.does_0", "D#does_19")
        assert found == slowly(document)


def test_failing_cases_are_spelled_like_those_that_passed_around_them() -> None:
    failing = case(9).replace("/>", "><failure/></testcase>")
    for end in (" />", "></testcase>", ">\n  </testcase>"):
        run = fast_path.Chunk(((PLAIN * 2).replace("/>", end) + failing + PLAIN.replace("/>", end)).encode()).find(0)
        assert len(names(run)) == 3 * 20


def test_failing_cases_keep_the_run_together_also_where_those_around_them_end_in_several_ways() -> None:
    failing = case(9).replace("/>", "><failure/></testcase>")
    talking = case(8).replace("/>", "><system-out>hello</system-out></testcase>")
    document = PLAIN.replace("/>", " />") + failing + talking + PLAIN.replace("/>", "></testcase>") + "</testsuite>"
    assert len(names(fast_path.Chunk(document.encode()).find(0))) == 2 * 20 + 1


@pytest.mark.parametrize(
    "odd",
    [
        '<testcase name="a &nbsp; b"/>',
        "<testcase name='quoted'/>",
        '<testcase name="twice" name="twice"/>',
        '<testcase name="a"classname="b"/>',
        '<testcase name="a &#27; b"/>',
        '<testcase name="a"><failure>]]></failure></testcase>',
        '<testcase name="a"><failure>&x;</failure></testcase>',
        '<testcase name="a"><failure>one</error></testcase>',
        '<testcase name="a"><failure><b/></failure></testcase>',
        '<testcase name="a"><failure>x<![CDATA[y]]></failure></testcase>',
        '<testcase name="a">loose</testcase>',
    ],
)
def test_what_a_parser_would_refuse_or_read_in_another_way_never_goes_down_the_lane(odd: str) -> None:
    assert fast_path.Chunk(f"{odd}\n".encode() * 30).find(0) is None


@pytest.mark.parametrize("text", ["&#11;", "&#27;[31m", "&#55296;", "&#65535;", "&nbsp;", "& ", "]]>"])
def test_output_that_a_parser_refuses_makes_the_document_partial_also_of_tests_that_passed(text: str) -> None:
    talking = case(1).replace("/>", f"><system-out>{text}</system-out></testcase>")
    document = f'<testsuites><testsuite name="a">{PLAIN}{talking}{PLAIN}</testsuite></testsuites>'.encode()
    found = junit.parse(io.BytesIO(document))
    assert found.partial
    assert found == slowly(document)


def test_cases_without_a_suite_are_left_to_the_parser() -> None:
    """The first of them would be the whole document."""
    document = (case(0) * 9).encode()
    assert junit.parse(io.BytesIO(document)) == slowly(document)


@pytest.mark.parametrize(
    "cases",
    [
        "<testcase name='single' classname='c' time='1'/>\n" * 6000,
        ("<testcase name='single'/>\n" * 5 + '<testcase name="double"/>\n' * 20) * 400,
        '<testcase  name="wide"   time="1"/>\n' * 6000,
        '<testcase name="open">' * 12000,
        '<testcase name="' + ">" * 200_000 + '"/>' * 2,
        '<testcase name="a"><failure><![CDATA[' * 6000,
        '<testcase name="a" time="1"><system-out><![CDATA[' * 5000,
        ('<testcase name="a" time="1"/>\n' * 9 + "<system-out><![CDATA[") * 900,
        ('<testcase name="a" time="1"/>\n' * 9 + '</testsuite><testsuite name="') * 900,
    ],
    ids=["single", "both", "wide", "open", "signs", "sections", "talk", "suite talk", "suites"],
)
def test_cases_that_do_not_fit_cost_no_more_than_their_length(cases: str) -> None:
    document = f"<testsuite>{cases}</testsuite>".encode()
    began = time.process_time()
    assert junit.parse(io.BytesIO(document)) == slowly(document)
    assert time.process_time() - began < 2
