"""Reports what was measured: figures, targets, pictures and the page. Measures nothing."""
