"""The tables of docs/answers-measured.md, one module each for generated text, and one for complete vectors."""
