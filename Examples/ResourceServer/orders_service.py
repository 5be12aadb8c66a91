#!/usr/bin/python3
"""A service on a shared device that gives orders to whoever shows a token of the device: orders_service.py [OPTION...].

It asks nobody about a token: the device's public keys are in a file. Debian has the library as python3-jwt.
"""

import argparse
import http.server
import json

import jwt

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--keys", default="/run/shared-device/keys.json", help="the JWK set of who signs the tokens")
parser.add_argument("--audience", help="what tokens call this service; by default the issuer")
parser.add_argument("--scope", default="orders.read", help="what a token has to permit")
parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; by default any that is free")
options = parser.parse_args()


class Refused(Exception):
    """The token does not count: the status, and OAuth's word for it (RFC 6750, section 3.1)."""

    def __init__(self, status: int, error: str, reason: str):
        super().__init__(reason)
        self.status, self.error = status, error


def published_keys() -> dict:
    """The device's public keys and who they are of. Read for each token, because keys change. Raises Refused."""
    try:
        with open(options.keys, encoding="utf-8") as file:
            published = json.load(file)
        keys = {key["kid"]: (jwt.PyJWK(key).key, key["alg"]) for key in published["keys"]}
        return {"issuer": published["issuer"], "keys": keys}
    except (OSError, ValueError, LookupError, TypeError, jwt.PyJWTError):
        # The broker has not started yet, or somebody else writes there. No token counts until it is mended.
        raise Refused(503, "temporarily_unavailable", "the device's keys cannot be read; try again") from None


def claims_of(token: str) -> dict:
    """What the token says. Raises Refused."""
    published = published_keys()
    try:
        header = jwt.get_unverified_header(token)
        # Nobody has signed this yet: anything may be in it.
        if str(header.get("typ")).lower() != "at+jwt":
            raise Refused(401, "invalid_token", "this is no access token")
        key, algorithm = published["keys"][str(header.get("kid"))]
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm],  # The key's own: a token does not choose.
            issuer=published["issuer"],
            audience=options.audience or published["issuer"],
            leeway=30,
            options={"require": ["iss", "sub", "aud", "exp", "iat", "jti"]},
        )
    except KeyError:
        raise Refused(401, "invalid_token", "no key of this device has signed it") from None
    except (jwt.PyJWTError, RecursionError) as error:
        raise Refused(401, "invalid_token", str(error)) from None
    if options.scope not in claims.get("scope", "").split():
        raise Refused(403, "insufficient_scope", f"it does not permit {options.scope}")
    return claims


class Orders(http.server.BaseHTTPRequestHandler):
    timeout = 5

    def do_GET(self) -> None:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise Refused(401, "invalid_request", "show a token: Authorization: Bearer …")
            self.answer(200, {"of": claims_of(token.strip())["sub"], "orders": ["12 apples", "1 pear"]})
        except Refused as refused:
            challenge = None if refused.status == 503 else f'Bearer error="{refused.error}"'
            self.answer(refused.status, {"error": refused.error, "reason": str(refused)}, challenge)

    def answer(self, status: int, content: dict, challenge: str | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing: a line of a request may hold a token."""


with http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Orders) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
