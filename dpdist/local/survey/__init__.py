"""One question to many users: protocol, devices, wire, aggregation and simulation."""
