"""What files, HTTP and object stores share: locations, templates, retries."""
