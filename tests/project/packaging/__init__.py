"""The files of packaging/: unit, image, board, alerts, proxies."""
