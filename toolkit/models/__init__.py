"""Language models as `LM`s. The only room that knows transformers."""
