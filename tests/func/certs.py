"""Certificates for tests, made with openssl(1): an authority per folder, and what it signs.

    certs = Certs(tmp_path)
    server = certs.make("server", "DNS:gate.test,IP:127.0.0.1")  # server.pem, server.key: paths
"""
import dataclasses
import os
import pathlib
import subprocess

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

RSA = ("-newkey", "rsa:2048", "-nodes")


def openssl(*args, cwd=None, **kw):
    return subprocess.run(["openssl", *map(str, args)], cwd=cwd, check=True, capture_output=True, **kw)


@dataclasses.dataclass
class Pair:
    pem: pathlib.Path
    key: pathlib.Path

    def flags(self, prefix=""):
        return [f"--{prefix}cert", str(self.pem), f"--{prefix}key", str(self.key)]

    def read(self):
        return self.key.read_bytes(), self.pem.read_bytes()


class Certs:
    def __init__(self, folder, name="ca"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.name = name
        self.ca = self.folder / f"{name}.pem"
        openssl("req", "-x509", *EC, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN=test {name}", "-days", 3, cwd=self.folder)

    def pair(self):
        """The authority itself, as if it were a server: self-signed."""
        return Pair(self.ca, self.folder / f"{self.name}.key")

    def make(self, name, san, issuer=None, is_ca=False, expired=False, common_name=None, rsa=False):
        """A pair that the authority (or issuer, a Pair) signed; with its chain when there is an issuer."""
        d = self.folder
        openssl("req", *(RSA if rsa else EC), "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=" + (common_name or name).replace("/", "\\/"), cwd=d)
        (d / f"{name}.ext").write_text(f"subjectAltName={san}\nbasicConstraints=critical,CA:{str(is_ca).upper()}\n")
        by, key = (issuer.pem, issuer.key) if issuer else (self.ca, d / f"{self.name}.key")
        dates = ("-startdate", "20240101000000Z", "-enddate", "20240102000000Z") if expired else ("-days", "2")
        if expired:  # x509 has no dates of its own; ca has
            (d / "ca.cnf").write_text("[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=serial.txt\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n"
                                      "unique_subject=no\n[p]\ncommonName=supplied\n")
            (d / "index.txt").write_text("")
            (d / "serial.txt").write_text("1000\n")
            openssl("ca", "-batch", "-config", "ca.cnf", "-cert", by, "-keyfile", key, "-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile",
                    f"{name}.ext", *dates, "-notext", cwd=d)
        else:
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", by, "-CAkey", key, "-set_serial", str(int.from_bytes(os.urandom(8), "big")),
                    *dates, "-extfile", f"{name}.ext", "-out", f"{name}.pem", cwd=d)
        pair = Pair(d / f"{name}.pem", d / f"{name}.key")
        if issuer:
            pair.pem.write_bytes(pair.pem.read_bytes() + issuer.pem.read_bytes())
        return pair
