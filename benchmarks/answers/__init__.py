"""The tables of docs/answers.md, one module each for generated text, and one for complete vectors."""
