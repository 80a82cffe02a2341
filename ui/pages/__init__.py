"""One module per page, each with `build(context) -> None`, called inside its tab."""
