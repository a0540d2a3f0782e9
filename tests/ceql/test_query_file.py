"""Query files of a folder."""

import pytest

from cer_gpu.ceql.query_file import queries_in
from cer_gpu.errors import OptionError


def test_a_folder_gives_its_query_files_by_name(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("b.ceql", "a.ceql", "inner/c.ceql", "notes.txt"):
        (tmp_path / name).write_text("SELECT * FROM S WHERE A")
    found = queries_in(tmp_path)
    assert list(found) == ["a", "b", "inner/c"]
    assert found["inner/c"] == tmp_path / "inner" / "c.ceql"


@pytest.mark.parametrize(("name", "message"), [("none", "found nothing"), ("file", "found a file"), ("", "found none")])
def test_a_folder_without_query_files_is_refused(tmp_path, name, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match=message):
        queries_in(tmp_path / name)
