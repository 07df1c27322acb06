# SPDX-License-Identifier: Apache-2.0
"""Usage: broken_server.py FOLDER LOG. Serves FOLDER's files on a free port of this machine, which it prints, as good and bad servers
do: /good/NAME takes ranges; /norange/NAME ignores them; /break/NAME ends each connection after 100,000 bytes;
/always/NAME does both; /stop/NAME sends 50,000
bytes once and then none; /hang/NAME sends 50,000 bytes and then waits; /moved/NAME redirects to /good; /status/503 has that status.
LOG gets a line for each request: the path and the first byte that was asked for."""

import http.server
import pathlib
import sys
import threading
import time

folder, log = pathlib.Path(sys.argv[1]), open(sys.argv[2], "a", buffering=1)
stopped = set()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        how, name = self.path.strip("/").split("/", 1)
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        log.write(f"{self.path} {start}\n")
        if how == "status":
            return self.send_error(int(name))
        if how == "moved":
            self.send_response(302)
            self.send_header("Location", f"/good/{name}")
            return self.end_headers()
        if not (folder / name).is_file():
            return self.send_error(404)
        data = (folder / name).read_bytes()
        if how in ("norange", "always"):
            start = 0
        elif start >= len(data):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        part = data[start:]
        if how in ("break", "always"):
            part = part[:100_000]
        elif how == "stop":
            part = b"" if name in stopped else part[:50_000]
            stopped.add(name)
        elif how == "hang":
            part = part[:50_000]
        try:
            self.wfile.write(part)
            self.wfile.flush()
            if how == "hang":
                time.sleep(600)
        except OSError:
            pass
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()  # ends with who started it
server.serve_forever()
