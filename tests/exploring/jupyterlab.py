"""JupyterLab over a folder of notebooks: its own environment, with kernels of this Python and its packages."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAB = Path(os.environ.get("CER_GPU_JUPYTERLAB") or ROOT / ".venv" / "lab")
"""The environment that `make .venv/lab/.installed` makes."""
TOKEN = "notebook"
KERNEL = """\
import sys
sys.path[:0] = [{root!r}]
sys.path.append({packages!r})  # of a kernel alone: all others are those of this environment
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""
QUIET = {"@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}}
IN_WIDGET = """
    const host = [...document.querySelectorAll(".jp-OutputArea-output *")].find((each) => each.shadowRoot);
    const $ = (id) => host?.shadowRoot.getElementById(id) ?? null;
"""
"""Begins scripts that read the widget of a notebook."""


def packages():
    """Return the folder of packages of JupyterLab, or None if there is none."""
    folders = LAB.glob("lib/python*/site-packages") if (LAB / "bin" / "jupyter-lab").exists() else ()
    return next(iter(folders), None)


def write_notebook(file, *cells):
    """Write a notebook of cells of Python."""
    one = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    kernel = {"name": "cer_gpu", "display_name": "cer_gpu", "language": "python"}
    cells = [{**one, "id": f"cell-{k}", "source": source} for k, source in enumerate(cells)]
    contents = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    Path(file).write_text(json.dumps(contents))


@contextlib.contextmanager
def jupyterlab(notebooks, home):
    """Start JupyterLab over a folder of notebooks, with its settings in an empty folder; yield its address."""
    kernel = KERNEL.format(root=str(ROOT), packages=str(packages()))
    spec = {"argv": [sys.executable, "-c", kernel, "-f", "{connection_file}"], "language": "python"}
    folder = home / "data" / "kernels" / "cer_gpu"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({**spec, "display_name": "cer_gpu"}))
    for name, settings in QUIET.items():
        file = home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(settings))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {f"JUPYTER_{name.upper()}_DIR": str(home / name) for name in ("config", "data", "runtime")}
    extensions = str(Path(sys.prefix) / "share" / "jupyter")  # those of anywidget
    environment = {**os.environ, **folders, "JUPYTER_PATH": extensions, "IPYTHONDIR": str(home / "ipython")}
    environment.pop("PYTHONPATH", None)
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    options += [f"--IdentityProvider.token={TOKEN}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={notebooks}"]
    options += [f"--LabApp.user_settings_dir={home / 'settings'}", f"--LabApp.workspaces_dir={home / 'workspaces'}"]
    # no list of extensions, which is PyPI's, and no language servers
    options += ["--LabApp.extension_manager=readonly", "--ServerApp.jpserver_extensions", "jupyter_lsp=False"]
    with open(home / "log", "wb") as log:
        child = subprocess.Popen([LAB / "bin" / "jupyter-lab", *options], env=environment, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(600):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=5):
                    break
                assert child.poll() is None, (home / "log").read_text()
                time.sleep(0.1)
            yield address
        finally:
            stop_kernels(address)
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _ask(address, path, method="GET"):
    """Ask the server; return its answer, or None without contents."""
    headers = {"Authorization": f"token {TOKEN}"}
    request = urllib.request.Request(f"{address}/api/{path}", headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def stop_kernels(address):
    """Stop all kernels, which would outlive a server that is killed."""
    with contextlib.suppress(OSError):
        for kernel in _ask(address, "kernels"):
            _ask(address, f"kernels/{kernel['id']}", "DELETE")


def open_notebook(browser, address, name):
    """Open a notebook, and wait until its kernel is ready."""
    browser.open(f"{address}/lab/workspaces/{Path(name).stem}/tree/{name}", f"?token={TOKEN}")
    ready = "return document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status === 'idle'"
    browser.until(ready, also=lambda: _has_kernel(address, name), n_times=1200)


def _has_kernel(address, name):
    states = [each["kernel"]["execution_state"] for each in _ask(address, "sessions") if each["name"] == name]
    return states == ["idle"]


def run_first_cell(browser, keys):
    """Run the first cell by the keyboard, and wait until its widget has its events; the query has the focus."""
    browser.run("document.querySelector('.jp-CodeCell .cm-content').focus()")
    browser.chord(*keys)
    accept = "document.querySelector('.jp-Dialog .jp-mod-accept')?.click();"  # asks for a kernel that is on its way
    browser.until(accept + IN_WIDGET + "return /event/.test($('of-events')?.innerText)", n_times=1200)
    browser.run(IN_WIDGET + "$('text').focus()")
