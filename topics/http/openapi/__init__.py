"""The OpenAPI 3.1 description of the server, generated from the route table.

The same table routes the requests and checks their scopes.
"""
