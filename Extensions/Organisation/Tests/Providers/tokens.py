"""The ID tokens and logout tokens of a provider, with deliberate mistakes. The name of the provider's fault selects one."""

import base64
import hashlib
import secrets
import time

CLIENT = "device-7"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"

# The changes of each mistake to the claims of an ID token.
CLAIMS = {
    "invalid-iss": lambda claims: claims.update(iss=claims["iss"] + "/"),
    "invalid-aud": lambda claims: claims.update(aud="another-client"),
    "missing-aud": lambda claims: claims.pop("aud"),
    "missing-iat": lambda claims: claims.pop("iat"),
    "missing-exp": lambda claims: claims.pop("exp"),
    "missing-sub": lambda claims: claims.pop("sub"),
    "many-groups": lambda claims: claims.update(groups=[f"{number:036}" for number in range(2000)]),
    "number-sub": lambda claims: claims.update(sub=7),
    "text-iat": lambda claims: claims.update(iat=str(claims["iat"])),
    "millisecond-iat": lambda claims: claims.update(iat=claims["iat"] * 1000),
    "long-sub": lambda claims: claims.update(sub="a" * 256),
    "nonce-invalid": lambda claims: claims.update(nonce="another"),
    "missing-nonce": lambda claims: claims.pop("nonce", None),
    "invalid-athash": lambda claims: claims.update(at_hash="AAAAAAAAAAAAAAAAAAAAAA"),
    "expired": lambda claims: claims.update(exp=time.time() - 90, iat=time.time() - 4000),
    "of-the-future": lambda claims: claims.update(iat=time.time() + 90),
    "not-yet": lambda claims: claims.update(nbf=time.time() + 90),
    "several-audiences": lambda claims: claims.update(aud=[CLIENT, "another-client"]),
    "several-audiences-azp": lambda claims: claims.update(aud=["another-client", CLIENT], azp=CLIENT),
    "wrong-azp": lambda claims: claims.update(azp="another-client"),
    "earlier-person": lambda claims: claims.update(auth_time=time.time() - 3600),
    "auth-time-zero": lambda claims: claims.update(auth_time=0),
}
# The change of each mistake to the signature.
SIGNATURES = {
    "idtoken-sig-none": {"alg": "none"},
    "invalid-sig-rs256": {"alg": "RS256", "spoil": True},
    "invalid-sig-ps256": {"alg": "PS256", "spoil": True},
    "invalid-sig-es256": {"alg": "ES256", "spoil": True},
    "invalid-sig-eddsa": {"alg": "EdDSA", "spoil": True},
    "invalid-sig-hs256": {"alg": "HS256"},
    "rs256": {"alg": "RS256"},
    "ps256": {"alg": "PS256"},
    "eddsa": {"alg": "EdDSA"},
    "kid-absent-single-jwks": {"kid": None},
    "kid-absent-multiple-jwks": {"kid": None},
    "crit": {"header": {"crit": ["exp"]}},
    "jku": {"header": {"jku": "https://localhost/keys"}},
    "wrong-typ": {"header": {"typ": "logout+jwt"}},
    "encrypted": {"alg": "JWE"},
}


class Tokens:
    """The tokens that a provider with this fault signs with its `signer`."""

    fault, signer = "none", None

    def id_token(self, issuer, access, nonce=None, authenticated_at=None, **changes):
        now = int(time.time())
        algorithm = SIGNATURES.get(self.fault, {}).get("alg", "ES256")
        digest = hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256
        half = digest(access.encode()).digest()
        claims = {
            "iss": issuer, "aud": CLIENT, "sub": "ada", "iat": now, "exp": now + 300, "auth_time": authenticated_at, "sid": "session-1",
            "preferred_username": "ada@example.com",
            "at_hash": base64.urlsafe_b64encode(half[:len(half) // 2]).decode().rstrip("="),
        }
        if nonce:
            claims["nonce"] = nonce
        if self.fault.startswith("names-elsewhere"):
            del claims["preferred_username"]
        CLAIMS.get(self.fault, lambda _: None)(claims)
        claims.update(changes)
        return self.signer.sign(claims, **SIGNATURES.get(self.fault, {}))

    def logout_token(self, issuer):
        fault = self.fault.removeprefix("backchannel-")
        now = int(time.time())
        claims = {
            "iss": issuer, "aud": CLIENT, "sub": "ada", "sid": "session-1", "iat": now, "exp": now + 120,
            "jti": secrets.token_hex(8), "events": {LOGOUT_EVENT: {}},
        }
        changes = {
            "no-event": lambda: claims.pop("events"), "wrong-event": lambda: claims.update(events={"http://example.com": {}}),
            "with-nonce": lambda: claims.update(nonce="a"), "wrong-aud": lambda: claims.update(aud="another-client"),
            "wrong-iss": lambda: claims.update(iss="https://example.com"), "no-jti": lambda: claims.pop("jti"),
            "nobody": lambda: (claims.pop("sub"), claims.pop("sid")), "old": lambda: claims.update(iat=now - 300),
            "sub-only": lambda: claims.pop("sid"), "issued-90-s-ago": lambda: claims.update(iat=now - 90),
        }
        changes.get(fault, lambda: None)()
        algorithm = {"alg-none": "none", "wrong-alg": "HS256"}.get(fault, "ES256")
        return self.signer.sign(claims, alg=algorithm, header={"typ": "logout+jwt"})
