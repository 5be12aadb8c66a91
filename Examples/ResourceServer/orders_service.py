#!/usr/bin/python3
"""A service that returns orders to clients with a token of a shared device, or of its organisation's provider.

orders_service.py [OPTION...]

It verifies the tokens itself. The device's public keys are in a file, and the provider's keys are at an address. On Debian,
the library is in the package python3-jwt.
"""

import argparse
import http.client
import http.server
import json
import sys
import threading
import time
import urllib.request

import jwt

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--keys", default="/run/shared-device/keys.json", help="the JWK set with the device's public keys")
parser.add_argument("--issuer", help="the provider that signs the tokens, if not the device")
parser.add_argument("--audience", help="the audience of tokens for this service; by default the issuer")
parser.add_argument("--scope", default="orders.read", help="the scope that a token must have")
parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1; by default any free port")
options = parser.parse_args()


class Refused(Exception):
    """The token is not accepted. It has the HTTP status and OAuth's error code (RFC 6750, section 3.1)."""

    def __init__(self, status: int, error: str, reason: str):
        super().__init__(reason)
        self.status, self.error = status, error


class Provider:
    """The keys of the organisation's provider, cached for an hour. An unknown key ID reloads them, at most once a minute."""

    def __init__(self, issuer: str):
        self.issuer, self.published = issuer, {"issuer": issuer, "keys": []}
        # By time.monotonic(): until when the keys are used, and before which they are not read again.
        self.fresh_until, self.next_read = -1.0, -1.0
        self.lock = threading.Lock()

    def keys(self, wanted: str) -> dict:
        """Returns the issuer and its keys. Raises an error if they are too old and cannot be read now."""
        with self.lock:
            now = time.monotonic()
            is_known = now < self.fresh_until and any(key.get("kid") == wanted for key in self.published["keys"])
            if not is_known and now >= self.next_read:
                try:
                    description = self.read(self.issuer + "/.well-known/openid-configuration")
                    if description["issuer"] != self.issuer:
                        raise ValueError(f"the provider calls itself {description['issuer']!r}")
                    self.published["keys"] = [key for key in self.read(description["jwks_uri"])["keys"] if isinstance(key, dict)]
                    self.fresh_until = now + 3600
                finally:
                    # The pause begins at the end of the read, also after a failure. Otherwise the senders of tokens
                    # could control the rate of requests, and hold the lock that tokens with known keys need.
                    self.next_read = time.monotonic() + (60 if now < self.fresh_until else 1)
            elif now >= self.fresh_until:
                raise OSError("the last attempt failed less than a second ago")
            return self.published

    @staticmethod
    def read(address: str) -> dict:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return json.loads(answer.read(1 << 19))


provider = Provider(options.issuer) if options.issuer else None


def published_keys(wanted: str) -> dict:
    """Returns the issuer of the tokens and its public keys. Reads the device's file for each token. Raises Refused."""
    try:
        if provider:
            published = provider.keys(wanted)
        else:
            with open(options.keys, encoding="utf-8") as file:
                published = json.load(file)
        # A provider may publish keys for other uses. It may omit the algorithm: the key's type and curve tell it.
        keys = [key for key in published["keys"] if key.get("use", "sig") == "sig" and key["kty"] in ("EC", "RSA", "OKP")]
        by_curve = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
        algorithms = {key["kid"]: key.get("alg") or by_curve.get(key.get("crv"), "RS256") for key in keys}
        return {"issuer": published["issuer"], "keys": {key["kid"]: (jwt.PyJWK(key).key, algorithms[key["kid"]]) for key in keys}}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, jwt.PyJWTError, http.client.HTTPException) as error:
        # The broker has not started yet, or the keys are invalid or unreachable. No token is accepted until they can be read.
        print(f"cannot read the keys: {error!r}", file=sys.stderr, flush=True)
        raise Refused(503, "temporarily_unavailable", "the keys cannot be read; try again") from None


def claims_of(token: str) -> dict:
    """Checks the token and returns its claims. Raises Refused."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, RecursionError) as error:
        raise Refused(401, "invalid_token", str(error)) from None
    published = published_keys(str(header.get("kid")))
    try:
        # The signature is not checked yet: the header may contain anything.
        if str(header.get("typ")).lower() != "at+jwt":
            raise Refused(401, "invalid_token", "this is no access token")
        key, algorithm = published["keys"][str(header.get("kid"))]
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm],  # The key's algorithm: the token must not choose it.
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
        """Logs nothing, because a request line may contain a token."""


with http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Orders) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
