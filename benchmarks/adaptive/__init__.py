"""An attacker who knows the method, on releases with the default settings."""
