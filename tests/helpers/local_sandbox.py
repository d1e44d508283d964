# Copyright 2026 The verl maintainers
# SPDX-License-Identifier: Apache-2.0
"""A small server that speaks Sandbox Fusion's protocol and really runs Python, with faults on request."""

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalSandbox:
    """POST /run_code. `faults` are served before real answers, one a request:

    "sandbox_error", "http_504", "not_json", "no_status", "drop" (close the connection), or seconds to sleep first.
    """

    def __init__(self) -> None:
        self.faults: list[Any] = []
        self.delay_s = 0.0
        self.requests: list[dict[str, Any]] = []
        self.running = 0
        self.peak = 0
        self.lock = threading.Lock()
        sandbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sandbox.serve(self)

            def log_message(self, *args: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/run_code"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        request = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.requests.append(request)
            self.running += 1
            self.peak = max(self.peak, self.running)
            fault = self.faults.pop(0) if self.faults else None
        try:
            self.answer(handler, request, fault)
        finally:
            with self.lock:
                self.running -= 1

    def answer(self, handler: BaseHTTPRequestHandler, request: dict[str, Any], fault: Any) -> None:
        if isinstance(fault, int | float):
            time.sleep(fault)
            fault = None
        time.sleep(self.delay_s)
        if fault == "drop":
            handler.connection.close()
            return
        if fault == "http_504":
            self.send(handler, b"busy", 504)
        elif fault == "not_json":
            self.send(handler, b"<html>oops</html>")
        elif fault == "no_status":
            self.send(handler, b"{}")
        elif fault == "sandbox_error":
            body = {"status": "SandboxError", "message": "pipe broke", "compile_result": None, "run_result": None}
            self.send(handler, json.dumps(body).encode())
        else:
            self.send(handler, json.dumps(run_python(request), ensure_ascii=False).encode())

    @staticmethod
    def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def run_python(request: dict[str, Any]) -> dict[str, Any]:
    """What Sandbox Fusion answers for a Python program; text that does not compile is a compile error, as for C++."""
    started = time.monotonic()
    try:
        compile(request["code"], "main.py", "exec")
    except SyntaxError as error:
        compiled = {"status": "Error", "execution_time": 0.0, "return_code": 1, "stdout": "", "stderr": str(error)}
        return {"status": "Failed", "message": "", "compile_result": compiled, "run_result": None}
    try:
        done = subprocess.run(
            [sys.executable, "-c", request["code"]],
            input=(request["stdin"] or "").encode(),
            capture_output=True,
            timeout=request["run_timeout"],
        )
    except subprocess.TimeoutExpired as error:
        ran = {"status": "TimeLimitExceeded", "execution_time": request["run_timeout"], "return_code": None,
               "stdout": (error.stdout or b"").decode(), "stderr": ""}  # fmt: skip
        return {"status": "Failed", "message": "", "compile_result": None, "run_result": ran}
    ran = {
        "status": "Finished",
        "execution_time": time.monotonic() - started,
        "return_code": done.returncode,
        "stdout": done.stdout.decode(),
        "stderr": done.stderr.decode(),
    }
    status = "Success" if done.returncode == 0 else "Failed"
    return {"status": status, "message": "", "compile_result": None, "run_result": ran}
