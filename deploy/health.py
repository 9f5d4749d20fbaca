"""Exits with 0 if the server of this machine says that its run is not over, else with 1 and the reason.

    python3 health.py [PORT]

It asks ``/healthz`` by HTTPS and then by HTTP, since only the server knows whether it encrypts. The certificate is
not verified: it is asked for on the loopback, under a name that the certificate does not have.
"""

import ssl
import sys
import urllib.error
import urllib.request

SECONDS_MAX = 3


def main() -> int:
    """Returns the exit code."""
    port = sys.argv[1] if len(sys.argv) > 1 else "8740"
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    said = []
    for scheme in ("https", "http"):
        url = f"{scheme}://127.0.0.1:{port}/healthz"
        try:
            context = unverified if scheme == "https" else None
            with urllib.request.urlopen(url, timeout=SECONDS_MAX, context=context):
                return 0
        except (urllib.error.URLError, OSError) as error:
            said.append(f"{url}: {error}")
    print("\n".join(said), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
