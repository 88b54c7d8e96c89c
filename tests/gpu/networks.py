"""Networks for training and inference: ResNet-50 and a small transformer in plain PyTorch, as steps that can be repeated."""

# The network, whether it is trained, and whether its step is captured as a CUDA graph, by name of the cell.
CELLS = {
    f"{network}, {mode}{', graph' if graph else ''}": (network, mode == "training", graph)
    for network in ("ResNet-50", "transformer")
    for mode in ("training", "inference")
    for graph in (False, True)
}
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride
WORDS = 8000


def resnet50(torch):
    """Returns a ResNet-50: bottleneck blocks of 3, 4, 6 and 3, as in He et al. 2015, with the stride in the 3x3 convolution."""
    nn = torch.nn

    def convolution(wide_in, wide_out, size, stride=1):
        return [nn.Conv2d(wide_in, wide_out, size, stride, size // 2, bias=False), nn.BatchNorm2d(wide_out)]

    class Block(nn.Module):
        def __init__(self, wide_in, width, stride):
            super().__init__()
            wide_out = 4 * width
            self.main = nn.Sequential(
                *convolution(wide_in, width, 1), nn.ReLU(inplace=True), *convolution(width, width, 3, stride),
                nn.ReLU(inplace=True), *convolution(width, wide_out, 1),
            )  # fmt: skip
            same = stride == 1 and wide_in == wide_out
            self.beside = nn.Identity() if same else nn.Sequential(*convolution(wide_in, wide_out, 1, stride))

        def forward(self, values):
            return torch.relu(self.main(values) + self.beside(values))

    layers, wide = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in STAGES:
        for number in range(blocks):
            layers.append(Block(wide, width, stride if number == 0 else 1))
            wide = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 1000))


def transformer(torch):
    """Returns a transformer: six layers of width 512 that predict the next word."""
    nn = torch.nn

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True, norm_first=True)
            self.words = nn.Embedding(WORDS, 512)
            self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
            self.guess = nn.Linear(512, WORDS)

        def forward(self, words):
            return self.guess(self.layers(self.words(words))).flatten(0, 1)

    return Small()


def prepared(torch, network, training, device, batch=None):
    """Returns a network with its input and its target."""
    torch.manual_seed(1)
    if network == "ResNet-50":
        batch = batch or (32 if training else 8)
        model = resnet50(torch).to(device, memory_format=torch.channels_last)
        inputs = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
        return model, inputs, torch.arange(batch, device=device)
    batch = batch or (16 if training else 8)
    model, words = transformer(torch).to(device), torch.randint(WORDS, (batch, 257), device=device)
    return model, words[:, :-1].contiguous(), words[:, 1:].flatten()


def step(torch, cell, device="cuda", batch=None):
    """Returns a function that does one step of a cell, in bfloat16."""
    network, training, graph = CELLS[cell]
    model, inputs, wanted = prepared(torch, network, training, device, batch)
    half = torch.autocast(device, dtype=torch.bfloat16, cache_enabled=not graph)
    if training:
        optimizer = torch.optim.SGD(model.train().parameters(), lr=1e-3, momentum=0.9)

        def once():
            optimizer.zero_grad(set_to_none=True)
            with half:
                loss = torch.nn.functional.cross_entropy(model(inputs), wanted)
            loss.backward()
            optimizer.step()
            return loss
    else:
        model.eval()

        def once():
            with torch.no_grad(), half:
                return model(inputs)

    return captured(torch, once) if graph else once


def captured(torch, once):
    """Returns the step as a graph that is replayed."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            once()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kept = once()

    def replay():
        graph.replay()
        return kept

    return replay
