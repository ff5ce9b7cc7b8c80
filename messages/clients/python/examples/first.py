import sys
from dormouse_client.sync import Client

job = {"name": "from-python", "command": {"start": ["sh", "-c", "echo rank $DORMOUSE_RANK"]},
       "demand": {"cpu": 1, "memory": "64Mi"}, "containers": {"min": 1, "max": 2}}
with Client(sys.argv[1], tenant="ads") as client:
    print(client.submit(job).state)
