"""Reports as bytes: what is sent comes back, and nothing else is ever counted."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import pkgutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpdist.local
from dpdist.errors import DataError
from dpdist.local.crowd.answer_protocol import AnswerProtocol
from dpdist.local.randomisers.answer_responses import BitResponses
from dpdist.local.randomisers.frequency import KRR, OUE
from dpdist.local.randomisers.scalars import OneBit
from dpdist.local.statistics.bounded_values import Box
from dpdist.local.statistics.categories import Category
from dpdist.local.statistics.task_answers import TaskAnswers
from dpdist.local.survey.protocol import LocalProtocol, Randomiser, Statistic
from dpdist.local.survey.questionnaire import PARTS, Survey
from dpdist.local.survey.wire import HEADER, Verdict, checked, decode, encode, new_ids, repeated, report_bytes
from dpdist.privacy.randomness.draws import SystemDraws
from tests.local.survey.surveys import PROTOCOLS, SURVEYS, records

FUZZ = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def sent(survey: Survey, n: int = 50):
    reports = survey.protocol.randomise(records(survey, n), SystemDraws(), survey.public)
    return reports, encode(survey, reports)


@pytest.mark.parametrize("name", SURVEYS)
def test_what_is_sent_comes_back(name):
    survey = SURVEYS[name]
    reports, data = sent(survey)
    assert data.shape == (50, report_bytes(survey)) and data.dtype == np.uint8
    for arrived in (data, [*map(bytes, data)]):
        found = decode(Survey.from_json(survey.to_json()), arrived)
        assert found.counts["valid"] == 50 and np.array_equal(found.reports, reports)
        assert found.reports.dtype == reports.dtype and found.reports.dtype.isnative
        assert np.array_equal(survey.protocol.accumulate(found.reports), survey.protocol.accumulate(reports))
    assert np.array_equal(encode(survey, found.reports, found.ids), data)


@pytest.mark.parametrize("name", SURVEYS)
def test_no_report_is_a_sum_of_nothing(name):
    protocol = PROTOCOLS[name]
    reports, data = sent(SURVEYS[name], 3)
    nothing = decode(SURVEYS[name], data[:0])
    assert len(nothing.reports) == len(nothing.verdicts) == 0
    assert np.array_equal(protocol.accumulate(nothing.reports), 0 * protocol.accumulate(reports))


def test_the_layout_of_the_bytes():
    """What other implementations have to write; numbers are little-endian on any machine."""
    survey = Survey(LocalProtocol(Category(3), KRR(3, epsilon=1.0)), round=258)
    data = encode(survey, np.array([2], np.uint8), np.arange(16, dtype=np.uint8)[None])
    assert bytes(data[0]) == (
        b"\xd9\x01" + b"\x02\x01\x00\x00" + bytes.fromhex(survey.fingerprint[:16]) + bytes(range(16)) + b"\x02"
    )
    vectors = SURVEYS["privunit"]
    assert bytes(encode(vectors, np.array([[1, 2, 3, 4, -2]], np.int32))[0, HEADER:])[:4] == b"\x01\x00\x00\x00"


@pytest.mark.parametrize("name", SURVEYS)
def test_arbitrary_payloads_count_only_if_they_are_reports(name):
    """Whatever is accepted is a report that encodes to the same bytes and passes the randomiser's own check."""
    survey = SURVEYS[name]
    head, length = encode(survey, sent(survey, 1)[0])[0, :14], report_bytes(survey)

    @FUZZ
    @given(st.lists(st.binary(min_size=length - 14, max_size=length - 14), min_size=1, max_size=20))
    def check(tails):
        data = np.frombuffer(b"".join(bytes(head) + tail for tail in tails), np.uint8).reshape(len(tails), -1)
        found = decode(survey, data)
        assert set(found.verdicts.tolist()) <= {Verdict.VALID, Verdict.DOMAIN, Verdict.DUPLICATE}
        assert survey.protocol.randomiser.valid(found.reports).all()
        assert np.array_equal(encode(survey, found.reports, found.ids), data[found.verdicts == Verdict.VALID])
        total = survey.protocol.accumulate(found.reports)
        assert (np.abs(total) <= survey.protocol.units * len(found.reports)).all()
        assert len(np.unique(found.ids, axis=0)) == len(found.ids)

    check()


@FUZZ
@given(st.lists(st.binary(max_size=80), max_size=20), st.sampled_from(sorted(SURVEYS)))
def test_arbitrary_messages_are_no_reports(messages, name):
    """Two marks, a version and 8 bytes of a hash: the chance that noise has them is nil."""
    found = decode(SURVEYS[name], messages)
    assert found.counts["valid"] == 0 and len(found.reports) == 0 and len(found.verdicts) == len(messages)
    assert found.counts["length"] >= sum(len(m) != report_bytes(SURVEYS[name]) for m in messages)


@FUZZ
@given(st.sampled_from(sorted(SURVEYS)), st.integers(0, 10**6), st.integers(1, 255), st.integers(0, 4))
def test_cut_extended_and_flipped(name, place, flip, which):
    survey = SURVEYS[name]
    reports, data = sent(survey, 5)
    messages = [*map(bytes, data)]
    good = messages[which]
    position = place % len(good)
    flipped = bytearray(good)
    flipped[position] ^= flip
    messages[which : which + 1] = [good[:position], good + b"\0", bytes(flipped)]
    found = decode(survey, messages)
    assert found.verdicts[which] == found.verdicts[which + 1] == Verdict.LENGTH
    expected = {0: 2, 1: 2, **dict.fromkeys(range(2, 6), 3), **dict.fromkeys(range(6, 14), 4)}.get(position)
    verdict = int(found.verdicts[which + 2])
    assert verdict == expected if expected else verdict in (Verdict.VALID, Verdict.DOMAIN)
    others = np.delete(np.arange(5), which)
    kept = found.reports if verdict != Verdict.VALID else np.delete(found.reports, which, axis=0)
    assert np.array_equal(kept, reports[others]), "the rest is unharmed"


def test_one_bad_report_of_each_kind():
    survey = Survey(LocalProtocol(Category(3), KRR(3, epsilon=1.0)), round=4)
    good = encode(survey, np.array([0, 1, 2], np.uint8))
    other_question = Survey(LocalProtocol(Category(3), KRR(3, epsilon=1.1)), round=4)
    impossible = good[2].copy()
    impossible[-1] = 3
    messages = [
        *map(bytes, good),
        b"",
        bytes(len(good[0])),
        b"\xd9\x02" + bytes(good[0, 2:]),
        bytes(encode(dataclasses.replace(survey, round=5), np.array([0], np.uint8))[0]),
        bytes(encode(other_question, np.array([0], np.uint8))[0]),
        bytes(impossible),
        bytes(good[1]),
    ]
    found = decode(survey, messages)
    assert found.counts == {
        "valid": 3, "length": 2, "version": 1, "round": 1, "survey": 1, "domain": 1, "duplicate": 1,
    }  # fmt: skip
    assert found.reports.tolist() == [0, 1, 2]


def test_an_impossible_report_does_not_take_the_place_of_an_honest_one_with_its_id():
    survey = SURVEYS["krr"]
    good = encode(survey, np.array([2], np.uint8))
    forged = good.copy()
    forged[0, -1] = 200
    found = decode(survey, np.concatenate([forged, good, good]))
    assert found.verdicts.tolist() == [Verdict.DOMAIN, Verdict.VALID, Verdict.DUPLICATE]


def test_repeated_keys_are_those_after_the_first():
    rng = np.random.default_rng(0)
    for words in (1, 2):
        keys = rng.integers(0, 5, (200, words)).astype(np.uint64)
        seen, expected = set(), []
        for key in map(tuple, keys.tolist()):
            expected.append(key in seen)
            seen.add(key)
        assert repeated(keys).tolist() == expected


def test_ids_are_different():
    assert len(np.unique(new_ids(10_000), axis=0)) == 10_000


def test_arrays_that_are_no_messages():
    survey = SURVEYS["krr"]
    for table in (np.zeros((3, 5), np.uint8), np.zeros((3, 31), np.int64), np.zeros(3, np.uint8)):
        assert (checked(survey, table)[2] == Verdict.LENGTH).all() and len(table) == 3
    with pytest.raises(DataError, match="reports of Category/krr"):
        encode(survey, np.zeros(3))


@pytest.mark.parametrize("name", SURVEYS)
def test_a_description_is_the_whole_protocol(name):
    survey = Survey(PROTOCOLS[name], round=3, state=[[0.1, 2], [3, 4]])
    again = Survey.from_json(survey.to_json())
    assert again == survey and again.fingerprint == survey.fingerprint
    assert repr(again.protocol) == repr(PROTOCOLS[name]) and again.public.tolist() == [[0.1, 2], [3, 4]]


def test_every_class_of_the_package_can_be_described():
    """A randomiser that no survey can name could be simulated, and never be used."""
    for module in pkgutil.iter_modules(dpdist.local.__path__):
        importlib.import_module(f"dpdist.local.{module.name}")

    def below(cls):
        return {cls, *(each for sub in cls.__subclasses__() for each in below(sub))}

    for cls in below(Statistic) | below(Randomiser) | below(LocalProtocol):
        if (
            cls.__module__.startswith("dpdist.local")
            and not inspect.isabstract(cls)
            and not cls.__name__.startswith("_")
        ):
            assert PARTS.get(cls.__name__) == cls.__module__, (
                f"{cls} is not in the table of dpdist.local.survey.questionnaire"
            )
    for name, module in PARTS.items():
        assert dataclasses.is_dataclass(getattr(importlib.import_module(module), name))


def test_the_fingerprint_tells_what_a_report_means():
    protocol = LocalProtocol(Category(3), KRR(3, epsilon=1.0))
    survey = Survey(protocol)
    same = [Survey(protocol, round=9), Survey(LocalProtocol(Category(3), KRR(3, epsilon=1)))]
    others = [
        Survey(LocalProtocol(Category(3), KRR(3, epsilon=1.5))),
        Survey(LocalProtocol(Category(3), OUE(3, epsilon=1.0))),
        Survey(LocalProtocol(Category(4), KRR(4, epsilon=1.0))),
        Survey(protocol, labels=("a", "b", "c")),
        Survey(protocol, state=[1.0]),
    ]
    assert {each.fingerprint for each in same} == {survey.fingerprint}
    assert len({each.fingerprint for each in (survey, *others)}) == 6


def changed(**changes):
    described = json.loads(Survey(LocalProtocol(Box(1), OneBit(1, epsilon=1.0))).to_json())
    for path, value in changes.items():
        *way, last = path.split("__")
        place = described
        for key in way:
            place = place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return json.dumps(described)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no description of a survey"),
        ("[" * 100_000, "no description of a survey"),
        ("[]", "expected the format"),
        (changed(format="dpdist-survey/2"), "expected the format 'dpdist-survey/1', got 'dpdist-survey/2'"),
        (changed(extra=1), "no parameter 'extra'"),
        (changed(labels=...), "lacks 'labels'"),
        (changed(labels=["a"]), "labels name the categories"),
        (changed(labels="a"), "labels must be a list"),
        (changed(round=-1), "round must be an integer"),
        (changed(round=True), "round must be an integer"),
        (changed(state="x"), "state must be an array"),
        (changed(protocol=[]), "must be a LocalProtocol"),
        (changed(protocol__type="OneBitt"), "unknown type 'OneBitt'; did you mean 'OneBit'"),
        (changed(protocol__type="Popen"), "protocol: unknown type 'Popen'"),
        (changed(protocol__type=["Box"]), "unknown type"),
        (changed(protocol__randomiser="os.system"), "protocol"),
        (changed(protocol__randomiser__type="Box"), "protocol"),
        (changed(protocol__randomiser__epsilon=0.0), "protocol.randomiser.epsilon must be positive"),
        (changed(protocol__randomiser__epsilon="1"), "protocol.randomiser.epsilon must be of type float"),
        (changed(protocol__randomiser__epsilon=float("nan")), "finite"),
        (changed(protocol__randomiser__size=10**12), r"protocol.randomiser.size must be an integer in"),
        (changed(protocol__statistic__n_features=2), "of a box of size 1"),
        (changed(protocol__randomiser__delta=1e-6), "no parameter 'delta'"),
        (changed(protocol__statistic__low=...), "lacks 'low'"),
        (changed().replace('"epsilon": 1.0', '"epsilon": 1.0, "epsilon": 50.0'), "'epsilon' twice"),
        (changed(protocol__randomiser__epsilon=10**400), "protocol.randomiser: a parameter of OneBit is no number"),
        (changed(state=10**400), "state must be an array"),
        (changed(protocol=functools.reduce(lambda below, _: [below], range(400), 1)), "within each other 50 times"),
    ],
)
def test_descriptions_that_are_refused(text, message):
    with pytest.raises(DataError, match=message):
        Survey.from_json(text)


def test_a_record_that_no_device_can_hold_is_not_asked_for():
    """A short file must not make a device fill its memory; of categories there may be as many as fit a number."""
    for many in (2**24 + 1, 2**31 - 1):
        with pytest.raises(DataError, match=f"a record has at most 2\\*\\*24 .* asks for {many}"):
            Survey(AnswerProtocol(TaskAnswers(many), BitResponses(many, 1.0)))
    assert Survey(AnswerProtocol(TaskAnswers(2**24), BitResponses(2**24, 1.0))).width == 2**24


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)
PATHS = (
    "format", "round", "labels", "state", "protocol", "protocol__type", "protocol__statistic", "protocol__randomiser",
    "protocol__randomiser__type", "protocol__randomiser__size", "protocol__randomiser__epsilon",
    "protocol__statistic__n_features", "protocol__statistic__low",
)  # fmt: skip


@settings(FUZZ, max_examples=300)
@given(st.sampled_from(PATHS), JSON)
def test_a_damaged_description_is_refused_or_works(path, value):
    try:
        survey = Survey.from_json(changed(**{path: value}))
    except DataError:
        return
    assert Survey.from_json(survey.to_json()) == survey
    assert decode(survey, [b"x"]).counts["length"] == 1


def test_a_class_from_elsewhere_is_no_part_of_a_survey():
    @dataclasses.dataclass(frozen=True)
    class Category(Box):
        pass

    with pytest.raises(DataError, match="none of the classes"):
        Survey(LocalProtocol(Category(1), OneBit(1, epsilon=1.0))).to_json()
