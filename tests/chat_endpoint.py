"""A chat endpoint for tests that labels a message like the most similar example in the prompt."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "only for tests"


def find_label(prompt: str) -> str:
    """Return the label of the example that shares most words with the message; \"good\" without examples."""
    *parts, question = prompt.split("\n\n")
    words = set(question.split("\n")[0].split())
    examples = [example.removeprefix("Message: ").split("\nLabel: ") for example in parts]
    return max(examples, key=lambda example: len(words & set(example[0].split())), default=["", "good"])[1]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_allowed = self.path == "/v1/chat/completions" and self.headers["Authorization"] == f"Bearer {KEY}"
        reply: object = {"error": {"message": "no"}}
        if is_allowed:
            content = f" {find_label(body['messages'][-1]['content']).capitalize()}.\n"
            reply = {"choices": [{"message": {"role": "assistant", "content": content}}]}
        data = json.dumps(reply).encode()
        self.send_response(200 if is_allowed else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        """Write nothing, to keep the test's output clean."""


@contextmanager
def chat_endpoint() -> Iterator[dict[str, str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/v1"
            yield {"CHAT_URL": url, "CHAT_KEY": KEY, "CHAT_MODEL": "any", "NO_PROXY": "127.0.0.1"}
        finally:
            server.shutdown()
            thread.join()
