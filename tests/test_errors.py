"""Messages say where, what, why, what next; each kind of mistake has its exit code."""

from contextpool import errors


def test_unknown_name_suggests_the_closest():
    error = errors.UnknownNameError("relation", "works_For", ["works_for", "born_in"])
    assert "relation 'works_For' is unknown" in str(error)
    assert "2 known" in str(error)
    assert "closest 'works_for'" in str(error)


def test_unknown_name_of_a_million_characters_stays_one_short_line():
    message = str(errors.UnknownNameError("entity", "x" * 10**6, ["x"]))
    assert len(message) < 300
    assert "\n" not in message
    assert "1,000,000 characters" in message


def test_control_characters_are_escaped_in_messages():
    assert "\x1b" not in str(errors.UnknownNameError("entity", "\x1b[31mred", []))


def test_bad_input_exits_with_2_and_failures_with_1():
    assert errors.DataError("x").exit_code == 2
    assert errors.ConfigError("x").exit_code == 2
    assert errors.UnknownNameError("entity", "x", []).exit_code == 2
    assert errors.TripleFileError("f", 3, "bad").exit_code == 2
    assert errors.FetchError("x").exit_code == 1


def test_triple_file_error_carries_its_place():
    error = errors.TripleFileError("a/train.txt", 118, "2 columns instead of 3")
    assert str(error).startswith("a/train.txt:118: ")
    assert (error.path, error.line) == ("a/train.txt", 118)


def test_closest_is_quick_for_many_names():
    names = [f"entity_{number}" for number in range(50_000)]
    assert "entity_77" in errors.closest("entity_77x", names)
