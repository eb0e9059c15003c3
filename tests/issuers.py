"""An issuer of OIDC tokens on loopback, and the keys that it signs with."""

import json
import time
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

SUBJECT = "system:serviceaccount:ttl-after-finished:expire-oidc-eventing.knative.dev-trigger"
AUDIENCE = "ttl-after-finished"
DISCOVERY = "/.well-known/openid-configuration"


class Signer:
    """A key pair, and the tokens that it signs."""

    def __init__(self, key_id, algorithm="RS256"):
        self.key_id, self.algorithm = key_id, algorithm
        is_rsa = algorithm.startswith("RS")
        self.private = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        self.public = self.private.public_key()

    def jwk(self):
        kind: Any = jwt.algorithms.RSAAlgorithm if self.algorithm.startswith("RS") else jwt.algorithms.ECAlgorithm
        return {**json.loads(kind.to_jwk(self.public)), "kid": self.key_id, "alg": self.algorithm, "use": "sig"}

    def sign(self, claims, **headers):
        return jwt.encode(claims, self.private, self.algorithm, {"kid": self.key_id, **headers})


SIGNER, OTHER = Signer("one"), Signer("two")


class LoopbackIssuer:
    """An OIDC issuer.

    Attributes:
        asked: Paths, and the Authorization header that came with each.
        discovery: The discovery document to answer in place of the correct one.
        is_down: Answers 503 to everything.
        redirects: The redirect target of a path.
    """

    def __init__(self):
        self.url = ""
        self.signers = [SIGNER]
        self.asked = []
        self.discovery = {}
        self.is_down = False
        self.redirects = {}

    async def handle(self, request):
        self.asked.append((request.path, request.headers.get("authorization")))
        if self.is_down:
            return web.Response(status=503)
        if request.path in self.redirects:
            return web.Response(status=307, headers={"location": self.redirects[request.path]})
        if request.path == DISCOVERY:
            return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.discovery})
        keys = {"keys": [signer.jwk() for signer in self.signers]}
        return web.Response(body=json.dumps(keys), content_type="application/jwk-set+json")

    def claims(self, **others):
        claims = {"iss": self.url, "aud": [AUDIENCE], "sub": SUBJECT, "exp": time.time() + 3_600, **others}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, signer=SIGNER, **others):
        return signer.sign(self.claims(**others))
