"""Archives of traces and recordings: what they hold is opened within limits; hostile ones leave nothing behind."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from fuzzing import chances, damaged
from synthetic_run import Job
from test_import_ops import pipeline, written
from test_import_recording import marked
from thinned import thinned
from unit.test_contents import recording

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import archive

ENDS = ["zip", "tar", "tar.gz", "tar.xz"]
HELD = 32 << 20


def packed(path: Path, sources: list[Path], base: Path) -> Path:
    """These files, by their names below base."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for source in sources:
                file.write(source, source.relative_to(base))
    else:
        mode = {"tar": "w", "gz": "w:gz", "xz": "w:xz"}[path.name.rpartition(".")[2]]
        with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
            for source in sources:
                tar.add(source, source.relative_to(base))
    return path


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """Of a tar."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


def tarred(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """A tar of these."""
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("end", thinned(ENDS, ["zip", "tar.gz"]))
def test_traces_in_an_archive_say_what_their_folder_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    """In a folder of their own within it, beside what a Mac puts there."""
    folder = marked(tmp_path / "traces", 2)
    path = packed(tmp_path / f"night.{end}", sorted(folder.iterdir()), tmp_path)
    said = []
    for each in (folder, path):
        for command in ("open", "diagnose"):
            assert 0 == main([command, str(each)])
            said.append(capsys.readouterr().out.partition("\n")[2])
    assert said[:2] == said[2:]
    assert "anks 2" in said[0] or "ank 2" in said[0]


@pytest.mark.parametrize("end", thinned(ENDS, ["zip", "tar.gz"]))
def test_a_recording_in_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str) -> None:
    """Read where it is one; of several the line says what to do."""
    plain = tmp_path / "run.tuirec"
    recording(plain, Job(num_steps=60))
    path = packed(tmp_path / f"run.{end}", [plain], tmp_path)
    said = []
    for each in (plain, path):
        assert 0 == main(["diagnose", str(each)])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert 0 == main(["replay", "--once", str(path)])
    assert 0 == main(["compare", str(plain), str(path)])
    table = written(tmp_path / "table.csv", pipeline(range(3)))
    several = packed(tmp_path / f"both.{end}", [plain, table], tmp_path)
    capsys.readouterr()
    assert 2 == main(["diagnose", str(several)])
    lists = f"name one; tuiadvisor open {several} lists them"
    assert f"{several} holds 2 things to open: {lists}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("end", thinned(ENDS, ["zip", "tar.gz"]))
def test_an_archive_of_several_things_is_a_list_and_each_opens_by_its_name_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    """As of a folder; every command takes ARCHIVE/NAME, and no folder that goes with the program is said."""
    (tmp_path / "in").mkdir()
    run = recording(tmp_path / "in" / "run.tuirec", Job(num_steps=60))
    folder = marked(tmp_path / "in" / "traces", 2)
    path = packed(tmp_path / f"night.{end}", [run, *sorted(folder.iterdir())], tmp_path / "in")
    capsys.readouterr()
    assert 0 == main(["open", "--json", str(path)])
    items = json.loads(capsys.readouterr().out)["items"]
    assert [str(path / "run.tuirec"), str(path / "traces")] == [item["path"] for item in items]
    assert 0 == main([str(path), "--once"])
    assert f"tuiadvisor open {path}/traces\n" in capsys.readouterr().out
    for item in items:
        assert 0 == main([*item["command"], "--once"])
        out = capsys.readouterr()
        assert f"{item['path']}: " in out.err
        assert tempfile.gettempdir() + "/tuiadvisor-" not in out.out + out.err
        assert 0 == main([item["path"], "--once"])
    assert 0 == main(["diagnose", "--json", str(path / "traces")])
    assert 0 == main(["import", "kineto", str(path)])
    capsys.readouterr()
    for wrong in ("none", "../in/run.tuirec", "run.tuirec/more"):
        assert 2 == main(["open", f"{path}/{wrong}"])
        assert f"{path} holds no {wrong}; tuiadvisor open {path} lists" in capsys.readouterr().err


@pytest.mark.parametrize("end", ENDS)
def test_several_recordings_or_an_archive_in_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    """One line by the archive's own name: what to do, or that nothing in it is read."""
    for name in ("a.tuirec", "b.tuirec"):
        recording(tmp_path / name, Job(num_steps=60))
    several = packed(tmp_path / f"several.{end}", sorted(tmp_path.glob("*.tuirec")), tmp_path)
    nested = packed(tmp_path / f"nested.{end}", [several], tmp_path)
    capsys.readouterr()
    assert 0 == main(["open", str(several)])
    assert f"tuiadvisor open {several}/a.tuirec" in capsys.readouterr().out
    for path, says, commands in (
        (several, "name one; tuiadvisor open", (["diagnose"], ["compare", str(several)])),
        (nested, "nothing recognised", (["open"], ["diagnose"], ["compare", str(nested)])),
    ):
        for command in commands:
            assert 2 == main([*command, str(path)])
            err = capsys.readouterr().err
            assert f"{path}: " in err.splitlines()[-1]
            assert says in err.splitlines()[-1]
    assert 2 == main(["import", "kineto", str(nested)])
    assert f"{nested}: nothing recognised" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../out.json", "a/../../out.json", "/../../out.json"])
@pytest.mark.parametrize("end", ["zip", "tar"])
def test_a_name_that_leads_out_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, end: str
) -> None:
    """Nothing is written."""
    path = tmp_path / f"evil.{end}"
    if end == "zip":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr(name, "{}")
    else:
        tarred(path, (member(name, 2), b"{}"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TuiadvisorError, match="leads out of its folder"):
        archive.inside(path)
    assert [path] == list(tmp_path.iterdir())


def test_links_and_devices_are_left_out(tmp_path: Path) -> None:
    """So that nothing is read or written through one; an absolute name lies below the folder."""
    path = tarred(
        tmp_path / "links.tar",
        (member("link", kind=tarfile.SYMTYPE, link="/etc"), b""),
        (member("hard", kind=tarfile.LNKTYPE, link="/etc/passwd"), b""),
        (member("pipe", kind=tarfile.FIFOTYPE), b""),
        (member("/data/a.json", 2), b"{}"),
    )
    folder = archive.inside(path)
    assert ("links.tar", "data") == (folder.parent.name, folder.name)
    assert ["data"] == [one.name for one in folder.parent.iterdir()]
    assert b"{}" == (folder / "a.json").read_bytes()
    zipped = tmp_path / "link.zip"
    with zipfile.ZipFile(zipped, "w") as file:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        file.writestr(info, "/etc/passwd")
        file.writestr("a.json", "{}")
    assert ["a.json"] == [one.name for one in archive.inside(zipped).iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_a_bomb_is_cut_off_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """Counted as it unpacks, and taken away."""
    monkeypatch.setattr(archive, "MAX_BYTES", HELD)
    big = tmp_path / "big.json"
    big.write_bytes(bytes(2 * HELD))
    path = packed(tmp_path / f"bomb.{end}", [big], tmp_path)
    with pytest.raises(TuiadvisorError, match="GiB unpacked"):
        archive.inside(path)


def test_many_files_and_long_headers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are made, or read into memory."""
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    path = tarred(tmp_path / "many.tar", *[(member(f"{number}", 0), b"") for number in range(5)])
    with pytest.raises(TuiadvisorError, match="more than 3 files"):
        archive.inside(path)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as file:
        for number in range(13):
            file.writestr(f"{number}", "")
    with pytest.raises(TuiadvisorError, match="more than 3 files"):
        archive.inside(tmp_path / "many.zip")
    header = member("././@PaxHeader", 1 << 30, kind=tarfile.XHDTYPE).tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "pax.tar.gz").write_bytes(gzip.compress(header + bytes(1 << 20)))
    with pytest.raises(TuiadvisorError, match="name in it is too long"):
        archive.inside(tmp_path / "pax.tar.gz")


@pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_of_each_kind_of_tar(tmp_path: Path, style: int) -> None:
    """As the makers of tars write them."""
    name = "/".join(["folder_of_a_night"] * 8) + "/rank0.json"
    with tarfile.open(tmp_path / "long.tar", "w", format=style) as tar:
        tar.addfile(member(name, 2), io.BytesIO(b"{}"))
    folder = archive.inside(tmp_path / "long.tar")
    assert str(folder / "rank0.json").endswith(f"long.tar/{name}")
    assert b"{}" == (folder / "rank0.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("end", thinned(ENDS, ["zip", "tar.gz"]))
def test_what_is_said_names_the_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str) -> None:
    """And not the folder that it is in for now, however deep its files lie in it."""
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    table = written(deep / "table.csv", pipeline(range(30)))
    fio = deep / "fio.json"
    fio.write_text(json.dumps({"fio version": "fio-3.28", "jobs": []}))
    for kind, file in (("ops", table), ("fio", fio)):
        path = packed(tmp_path / f"{kind}.{end}", [file], tmp_path)
        for command in (["open"], ["import", kind], ["open", "--json"], ["diagnose"]):
            assert (2 if kind == "fio" else 0) == main([*command, str(path)])
            said = capsys.readouterr()
            assert "tuiadvisor-" not in said.out + said.err
        if kind == "fio":
            assert f"tuiadvisor import fio {path}" in said.err
            assert f"{path}/a/b/c/fio.json: no jobs of fio in it" in said.err


def test_an_archive_of_nothing_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A zip says what it is without a file, too."""
    assert 2 == main(["open", str(packed(tmp_path / "none.zip", [], tmp_path))])
    assert "an archive without files" in capsys.readouterr().err


def test_what_torch_saved_is_not_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint is a zip, too; and one of nothing that anybody reads says so by its own name."""
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model/data.pkl", b"\x80\x02")
    assert 2 == main(["open", str(path)])
    assert f"{path}: what torch.save wrote, a pickle, which is never opened" in capsys.readouterr().err
    with zipfile.ZipFile(tmp_path / "notes.zip", "w") as file:
        file.writestr("notes.txt", b"hello")
    for command in ("open", "diagnose"):
        assert 2 == main([command, str(tmp_path / "notes.zip")])
        err = capsys.readouterr().err
        assert f"{tmp_path / 'notes.zip'}: nothing recognised" in err
        assert 1 == err.count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("end", thinned(ENDS, ["zip", "tar.gz"]))
def test_a_damaged_archive_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str) -> None:
    """Cut or spoiled anywhere."""
    table = written(tmp_path / "table.csv", pipeline(range(3)))
    whole = packed(tmp_path / f"whole.{end}", [table], tmp_path).read_bytes()
    for number, random in enumerate(chances(60)):
        path = tmp_path / f"{number}.{end}"
        path.write_bytes(damaged(whole, random))
        code = main(["open", "--json", str(path)])
        err = capsys.readouterr().err
        assert code in (0, 2), err
        assert "Traceback" not in err
        assert "tuiadvisor-" not in err
        if code == 2:
            assert f"{number}.{end}" in err.splitlines()[-1]
