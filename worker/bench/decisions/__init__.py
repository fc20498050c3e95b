"""How well quant levels decide: questions with right answers, measures, temperatures."""
