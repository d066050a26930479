import torch

# Toy models gain nothing from a second thread. On a busy machine each call would
# wait for it to get a core.
torch.set_num_threads(1)
