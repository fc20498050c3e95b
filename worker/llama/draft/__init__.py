"""A second model beside the one that is served."""
