"""Plain values and Protocols: settings, results, names, predicates, ports."""
