"""The one command, `foreshock`: it parses, calls one function and presents; it decides nothing."""
