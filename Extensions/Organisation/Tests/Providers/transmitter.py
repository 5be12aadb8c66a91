"""A polled stream of security events (OpenID Shared Signals Framework 1.0; RFC 8936), with deliberate mistakes.

Paths below an issuer of `faulty-provider`: POST `signals/poll` is the stream. GET `signals/add?event=NAME&…` adds an event,
with `fault=` for a mistake in its token. `signals/acknowledged`, `signals/errors`, `signals/polls` and `signals/waiting`
return what the receiver has done. The name of the issuer selects a mistake of the whole stream: `signals-hang`, …
"""

import json
import secrets
import threading
import time

SCHEMAS = "https://schemas.openid.net/secevent/"
EVENTS = {name: f"{SCHEMAS}{family}/event-type/{name}" for family, name in [
    ("caep", "session-revoked"), ("caep", "credential-change"), ("caep", "device-compliance-change"),
    ("risc", "sessions-revoked"), ("risc", "account-disabled"), ("risc", "account-purged"), ("ssf", "verification"),
]}
# The signature of the tokens of each mistake.
SIGNATURES = {
    "alg-none": {"alg": "none"}, "hs256": {"alg": "HS256"}, "spoilt": {"spoil": True}, "no-type": {"header": {}},
    "wrong-type": {"header": {"typ": "JWT"}}, "logout-type": {"header": {"typ": "logout+jwt"}},
    "jku": {"header": {"typ": "secevent+jwt", "jku": "https://localhost/keys"}},
}
# The changes of each mistake to the claims.
CLAIMS = {
    "wrong-aud": lambda claims: claims.update(aud="another-device"),
    "several-aud": lambda claims: claims.update(aud=[claims["aud"], "another-device"]),
    "no-aud": lambda claims: claims.pop("aud"),
    "wrong-iss": lambda claims: claims.update(iss="https://example.com"),
    "no-iat": lambda claims: claims.pop("iat"),
    "future": lambda claims: claims.update(iat=claims["iat"] + 3600),
    "no-jti": lambda claims: claims.pop("jti"),
    "other-jti": lambda claims: claims.update(jti="another"),
    "with-exp": lambda claims: claims.update(exp=claims["iat"] + 600),
    "with-sub": lambda claims: claims.update(sub="ada"),
    "no-events": lambda claims: claims.pop("events"),
    "empty-events": lambda claims: claims.update(events={}),
}


class Transmitter:
    def __init__(self, fault, provider):
        self.fault, self.provider = fault, provider
        self.waiting, self.acknowledged, self.errors = {}, [], {}
        self.polls = 0
        self.tokens = {"given-token"}
        self.changed = threading.Condition()
        # Loses one acknowledgement.
        self.forgets = fault.startswith("signals-forget")

    def grant(self, handler):
        if self.fault == "signals-no-grant":
            return handler.error("unauthorized_client")
        token = secrets.token_urlsafe(16)
        self.tokens.add(token)
        handler.answer({"access_token": token, "token_type": "Bearer", "expires_in": 3600, "scope": handler.form["scope"]})

    def serve(self, handler, page):
        lists = {"acknowledged": self.acknowledged, "errors": [f"{jti} {err}" for jti, err in self.errors.items()],
                 "waiting": list(self.waiting), "polls": [str(self.polls)]}
        if page == "poll":
            self.poll(handler)
        elif page == "add":
            handler.answer(self.add(handler.issuer, handler.query), kind="text/plain")
        else:
            handler.answer("\n".join(lists[page]), kind="text/plain")

    def add(self, issuer, query):
        now = int(time.time())
        fault, jti = query.get("fault", ""), secrets.token_hex(8)
        about = {"format": "iss_sub", "iss": issuer, "sub": query.get("subject", "ada")}
        if query.get("device"):
            about = {"format": "complex", "user": about, "device": {"format": "opaque", "id": query["device"]}}
        if query.get("session"):
            about = {"format": "complex", "user": about, "session": {"format": "opaque", "id": query["session"]}}
        event = {"event_timestamp": now - int(query.get("age", 0))}
        if query.get("status"):
            event["current_status"] = query["status"]
        claims = {
            "iss": issuer, "aud": query.get("audience", "device-7"), "iat": now - int(query.get("age", 0)), "jti": jti,
            "sub_id": about, "events": {EVENTS[query["event"]]: event},
        }
        CLAIMS.get(fault, lambda _: None)(claims)
        # A key that the provider does not publish.
        signer = type(self.provider.signer)() if fault == "stranger" else self.provider.signer
        if fault == "stranger":
            signer.name = self.provider.signer.name
        token = signer.sign(claims, **{"header": {"typ": "secevent+jwt"}, **SIGNATURES.get(fault, {})})
        if fault == "no-token":
            token = "nothing"
        with self.changed:
            self.waiting[jti] = token
            self.changed.notify_all()
        return jti

    def poll(self, handler):
        self.polls += 1
        token = handler.headers["Authorization"].removeprefix("Bearer ")
        if token not in self.tokens or self.fault == "signals-refuse":
            return handler.answer("", 401)
        request = json.loads(handler.text)
        answers = {
            "signals-away": lambda: handler.answer("", 503), "signals-html": lambda: handler.answer("<html>", kind="text/html"),
            "signals-redirect": lambda: handler.answer("", 302, Location="/none/signals/poll"),
            "signals-missing": lambda: handler.answer("", 404),
            "signals-hang": lambda: time.sleep(120),
        }
        if self.fault in answers:
            return answers[self.fault]()
        with self.changed:
            if self.forgets and request.get("ack"):
                self.forgets = False
            else:
                self.settle(request)
            if not request["returnImmediately"]:
                self.changed.wait_for(lambda: self.waiting, timeout=20)
            sets = dict(list(self.waiting.items())[:request["maxEvents"]])
        handler.answer({"sets": sets, "moreAvailable": len(sets) < len(self.waiting)})

    def settle(self, request):
        for jti in request.get("ack", []):
            if self.waiting.pop(jti, None):
                self.acknowledged.append(jti)
        for jti, error in request.get("setErrs", {}).items():
            if self.waiting.pop(jti, None):
                self.errors[jti] = error["err"]
