#!/usr/bin/env python3
"""Writes tests/vectors/pretokenizers/: small tokenizer.json files with the published pre-tokenizers, and the ids that
Hugging Face's own `tokenizers` library gives for awkward texts.

    pip install tokenizers==0.23.3 && python tests/vectors/make_pretokenizers.py

Each vocabulary is trained here on a few lines, so that it is small; pre-tokenizer, normalizer and post-processor are
those of the released models. golden.json: {tokenizer: [{text, ids, special}]}; `special` is add_special_tokens.
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).parent / "pretokenizers"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's what they'll say; we've said I'm sure you're right, he'd know.",
    "IT'S WHAT THEY'LL SAY; WE'VE SAID I'M SURE YOU'RE RIGHT.  Two  spaces,   three.\n\n\nNewlines\r\n\tand tabs",
    "Die Größe der Straße beträgt 1234567 Meter – 3,14 % für € 99.", "日本語のテキストと中文文本", "العربية والعبرية עברית",
    "def f(x):\n    return x ** 2  # comment\n\n\nclass A:\n    pass\n", "123 4567 89012 ½ ² ٣٤٥ Ⅷ", "😀😃 👩‍👩‍👧 e\u0301 é",
    "<tool_call>{\"name\": \"get\", \"arguments\": {\"a\": [1, 2, 3]}}</tool_call>",
] * 4

TEXTS = [
    "", " ", "  ", "a", " a", "  a", "a ", "a  ", "Hello, world!", "hello'S WE'LL i'M they'Ve 'sup ''s '", "it\u2019s",
    "long \u017f: it'\u017f and '\u017fa", "x'LLy'rez'D", "1", "12", "123", "1234", "12345678", "a1b22c333d4444", " 1  22   333",
    "½²³ Ⅷ ٣٤٥٦ 1²3", "a\n", "\n", "\n\n", "a\n\nb", "a \n b", "a\r\nb\r\n", " \n \n ", "\t\tx", "x\t y", "   \n   x", "!\n\n?", "!!!\r\n\r\n  ok",
    "a\u00a0b\u00a0\u00a0c", "\u3000漢字\u3000\u3000かな", "\u2028x\u2029y\u0085z\u180e\u200b.", "日本語テキスト。中文！", "שלום עולם مرحبا",
    "e\u0301e\u0300\u0323 \u1e9b\u0323 \u212b \ufb01 \uac00 \u1100\u1161\u11a8", "\u0301a\u0327\u0301 q\u0307\u0323", "😀👩‍👩‍👧🏽 ok😀1",
    "<|im_start|>user\nHi<|im_end|>\n", "a<|im_end|>b  <|strip|>  c<|im_end|><|im_end|>", "word<|word|>word <|word|> x", "<|im_start<|im_start|>|>",
    "  <nfc>e\u0301</nfc>  ", "$100.50% #tag @user a_b-c/d\\e", "f(x)=x**2;//--\n\n\t}", "\x00\x01\x7f\x1f", "\U0001d54f\U0001d7d9 \U000e0001",
    "don't  DON'T\tcan'T", "𝟘𝟙𝟚𝟛𝟜", "ａｂｃ１２３", "ǅ ʰ ª º", "<|word|>\u0301 ²<|word|> \u203f<|word|>\u200d <|word|>Ⅷ <|word|>.", "a" * 40 + " " * 20 + "b" * 3, "aaaaaaaaab" * 9,
]


def train(pre_tokenizer, normalizer=None, drop_bytes="", edit=lambda tokenizer: tokenizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = [c for c in pre_tokenizers.ByteLevel.alphabet() if c not in drop_bytes]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=sorted(alphabet), show_progress=False))
    tokenizer = edit(tokenizer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|begin|>"])
    tokenizer.add_special_tokens([AddedToken("<|strip|>", lstrip=True, rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<|word|>", single_word=True, normalized=False), AddedToken("<nfc>é", normalized=True)])
    return tokenizer


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def with_begin(tokenizer):
    begin = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", begin)]),
    ])
    return tokenizer


def ignoring_merges(tokenizer):
    """Llama-3's flag, with a vocabulary entry that no merge reaches."""
    spec = json.loads(tokenizer.to_str())
    spec["model"]["ignore_merges"] = True
    spec["model"]["vocab"]["Ġunreachable"] = len(spec["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(spec))


def main():
    OUT.mkdir(exist_ok=True)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    smollm = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    made = {
        "gpt2": train(gpt2),
        "smollm": train(smollm, drop_bytes="$@\u0100\u0101"),
        "qwen2": train(split(QWEN2), normalizers.NFC()),
        "llama3": with_begin(train(split(LLAMA3), edit=ignoring_merges)),
    }
    golden = {}
    for name, tokenizer in made.items():
        tokenizer.save(str(OUT / f"{name}.json"), pretty=False)
        texts = TEXTS + (["an unreachable word"] if name == "llama3" else [])
        golden[name] = [{"text": text, "special": special, "ids": tokenizer.encode(text, add_special_tokens=special).ids}
                        for text in texts for special in (False, True)[: 2 if name == "llama3" else 1]]
    (OUT / "golden.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
