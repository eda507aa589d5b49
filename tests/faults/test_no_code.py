"""A stranger's model is data: nothing that is read can run."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import blackout

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


WATCH = """
import sys
from blackout.cli.main import main
import blackout.score.generate, blackout.score.perplexity, blackout.models.saved
seen = []
def watch(event, arguments):
    if event.startswith(("pickle.", "marshal.load", "os.system", "subprocess.", "os.exec")):
        seen.append((event, arguments))
sys.addaudithook(watch)
assert main(["eval", *sys.argv[1:3]]) == 0
assert main(["generate", sys.argv[1], "--words", "3"]) == 0
assert not [e for e in seen if not e[0].startswith("marshal")], seen
"""


def test_loading_calls_no_unpickler_and_no_program(lab):
    run = lab.folder / "no-code-run"
    if not run.exists():
        lab.train(run, epochs=1)
    command = [sys.executable, "-c", WATCH, run, lab.text("test")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
