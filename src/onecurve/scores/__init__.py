"""How good a family is downstream for its compute: tables of scores, the frontier, power laws of the error."""
