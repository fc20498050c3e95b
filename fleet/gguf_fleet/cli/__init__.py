"""worker fleet: plan, serve and watch many workers behind one endpoint."""
