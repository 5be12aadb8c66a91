"""Signs tokens, with valid and with faulty signatures."""

import base64
import hashlib
import hmac
import json
import secrets

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

# Made once, because an RSA key takes long and no test needs two.
RSA = rsa.generate_private_key(65537, 2048)


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _number(value, length):
    return base64url(value.to_bytes(length, "big"))


class Signer:
    def __init__(self):
        self.name = secrets.token_hex(4)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.other_ec = ec.generate_private_key(ec.SECP256R1())
        self.ed25519 = ed25519.Ed25519PrivateKey.generate()

    def _point(self, key, name):
        numbers = key.public_key().public_numbers()
        return {"kty": "EC", "crv": "P-256", "x": _number(numbers.x, 32), "y": _number(numbers.y, 32), "kid": name}

    def public_keys(self, more=False):
        numbers = RSA.public_key().public_numbers()
        octets = self.ed25519.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        keys = [
            {"kty": "RSA", "n": _number(numbers.n, 256), "e": "AQAB", "kid": self.name + "-rsa", "use": "sig"},
            {**self._point(self.ec, self.name + "-ec"), "use": "sig"},
            {"kty": "OKP", "crv": "Ed25519", "x": base64url(octets), "kid": self.name + "-ed"},
            # A key of another type, which clients must ignore.
            {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
            {**self._point(self.other_ec, "encryption"), "use": "enc"},
        ]
        return keys + ([self._point(self.other_ec, self.name + "-other")] if more else [])

    def sign(self, claims, alg="ES256", kid="", spoil=False, header=None):
        suffix = {"ES256": "-ec", "EdDSA": "-ed"}.get(alg, "-rsa")
        head = {"alg": alg, **(header or {})}
        if kid is not None:
            head["kid"] = self.name + suffix
        content = base64url(json.dumps(head).encode()) + "." + base64url(json.dumps(claims).encode())
        if alg == "JWE":
            return content + ".YQ.YQ.YQ"
        signature = bytearray(self._signature(content.encode(), alg))
        if spoil:
            signature[len(signature) // 2] ^= 1
        return content + "." + base64url(bytes(signature))

    def _signature(self, data, alg):
        if alg == "none":
            return b""
        if alg == "HS256":
            public = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            return hmac.new(public, data, hashlib.sha256).digest()
        if alg == "EdDSA":
            return self.ed25519.sign(data)
        if alg == "ES256":
            r, s = utils.decode_dss_signature(self.ec.sign(data, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        if alg == "PS256":
            return RSA.sign(data, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())
        return RSA.sign(data, padding.PKCS1v15(), hashes.SHA256())
