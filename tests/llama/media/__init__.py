"""Pictures and sounds as the model reads them."""
