"""A stranger's model is data: nothing that is read can run."""

import ast
import sys
from pathlib import Path

import pytest

import blackout
from blackout.cli.main import main

SOURCE = Path(blackout.__file__).parent
RUNNING = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "yaml"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_reader_that_runs_what_it_reads(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & MODULES, path
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in RUNNING, f"{path}: {called}"
            assert called not in ("torch.load", "np.load", "numpy.load"), f"{path}: {called}"


def test_loading_calls_no_unpickler_and_no_program(lab, child, capfd):
    run = lab.folder / "no-code-run"
    if not run.exists():
        lab.train(run, epochs=1)
    seen = []

    def watch(event, arguments):
        if event.startswith(("pickle.", "os.system", "subprocess.", "os.exec")):
            seen.append((event, arguments))

    def watched():
        """In a process of its own: a hook cannot be taken off again."""
        sys.addaudithook(watch)
        scored = main(["eval", str(run), str(lab.text("test")), "--threads", "1"])
        assert (scored, main(["generate", str(run), "--words", "3"])) == (0, 0)
        assert not seen, seen

    assert child(watched).wait() == 0, capfd.readouterr()
