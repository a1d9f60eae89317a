"""Tests what `doctor` says of TLS and certificates, on real servers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.doctor import beside, codes, doctor, finding
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy
from tests.support.tls import Certificates, passing_context


def test_a_certificate_that_ends_soon(healthy: Cluster, certs: Certificates) -> None:
    with FaultProxy(healthy[2], tls=certs.server_context()) as proxy:
        code, told = doctor(beside(healthy, f"{proxy.url}?ssl_ca_certs={certs.ca}"))
    assert (code, codes(told)) == (1, {"certificate-ends"})
    assert "ends within 2 days" in finding(told, "certificate-ends")["problem"]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (timedelta(days=9, hours=12), "ends within 10 days"),
        (timedelta(hours=2), "ends within a day"),
        (timedelta(hours=-1), "has expired"),
    ],
)
def test_the_words_for_a_certificate_that_ends(
    healthy: Cluster, ends: timedelta, words: str
) -> None:
    with FaultProxy(healthy[2], tls=passing_context(timedelta(days=-9), ends)) as proxy:
        code, told = doctor(beside(healthy, f"{proxy.url}?ssl_cert_reqs=none"))
    assert (code, codes(told)) == (1, {"certificate-ends"})
    assert finding(told, "certificate-ends")["problem"] == f"its TLS certificate {words}"


def test_a_certificate_that_is_not_valid_yet(healthy: Cluster) -> None:
    begins, ends = timedelta(days=2), timedelta(days=9)
    with FaultProxy(healthy[2], tls=passing_context(begins, ends)) as proxy:
        code, told = doctor(beside(healthy, proxy.url))
    assert (code, codes(told)) == (1, {"tls"})
    assert finding(told, "tls")["problem"] == (
        "the node's certificate is not valid yet: is this machine's clock right?"
    )


def test_a_certificate_that_is_not_valid_yet_and_not_checked(healthy: Cluster) -> None:
    begins, ends = timedelta(days=2), timedelta(days=30)
    with FaultProxy(healthy[2], tls=passing_context(begins, ends)) as proxy:
        code, told = doctor(beside(healthy, f"{proxy.url}?ssl_cert_reqs=none"))
    assert (code, codes(told)) == (1, {"certificate-begins"})
    assert "not valid yet" in finding(told, "certificate-begins")["problem"]


def test_tls_where_none_is_spoken(healthy: Cluster) -> None:
    nodes = beside(healthy, healthy[2].url.replace("redis://", "rediss://"))
    code, told = doctor(nodes, "--timeout", "500ms")
    assert (code, codes(told)) == (1, {"hung"})
    assert "should begin with redis://" in finding(told, "hung")["remedy"]


def test_a_certificate_that_is_not_trusted(healthy: Cluster, certs: Certificates) -> None:
    with FaultProxy(healthy[2], tls=certs.server_context()) as proxy:
        code, told = doctor(beside(healthy, f"{proxy.url}?ssl_ca_certs={certs.other_ca}"))
    assert (code, codes(told)) == (1, {"tls"})
