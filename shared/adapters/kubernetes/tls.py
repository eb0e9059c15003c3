"""The TLS settings of connections to an API server."""

import ssl


def tls_context(*, ca_file: str | None = None, ca: str | None = None) -> ssl.SSLContext:
    """Return the TLS settings that trust a CA; those that trust the CAs of the system if none is given.

    Args:
        ca_file: A file with certificates in PEM.
        ca: Certificates in PEM.

    Raises:
        OSError: The certificates cannot be read, or are not valid.
    """
    context = ssl.create_default_context(cafile=ca_file, cadata=ca)
    # Python 3.13 requires key identifiers, which the CAs of older GKE and EKS clusters lack; kubectl does not require
    # them. The certificate chain, its dates and the host name are still verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
