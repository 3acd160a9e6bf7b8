// Verifies a Sigstore bundle with a public key: node sigstore_verify.js BUNDLE KEY
const crypto = require("crypto");
const fs = require("fs");
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity, toTrustMaterial } = require("@sigstore/verify");

const [file, keyFile] = process.argv.slice(2);
const publicKey = crypto.createPublicKey(fs.readFileSync(keyFile));
const nothing = { tlogs: [], ctlogs: [], certificateAuthorities: [], timestampAuthorities: [] };
const trust = toTrustMaterial(nothing, () => ({ publicKey, validFor: () => true }));
const bundle = bundleFromJSON(JSON.parse(fs.readFileSync(file, "utf8")));
new Verifier(trust, { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 }).verify(toSignedEntity(bundle));
