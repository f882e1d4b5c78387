"""The OpenAPI 3.1 description of the server, generated from the table that routes and checks scopes."""
