import pytest

from tests.http.byte_stream import Echo, Peer, make_service


@pytest.fixture(params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest) -> str:
    """Every test that takes it runs over both parsers."""
    return str(request.param)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def peer(echo: Echo, parser: str) -> Peer:
    return Peer(make_service(echo.routes(), http_parser=parser))
