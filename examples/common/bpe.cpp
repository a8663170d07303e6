#include "common/bpe.hpp"

#include <algorithm>
#include <compare>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>
#include <utility>

#include "attn/core/error.hpp"
#include "attn/io/json.hpp"

namespace attn::examples {
namespace {

using nlohmann::json;

/// Larger ids than this are taken for a damaged file, not for a vocabulary.
constexpr std::int64_t id_limit = 1 << 22;

/// The character that stands for each byte in a vocabulary file (GPT-2's bytes_to_unicode): printable bytes
/// of Latin-1 for themselves, the others from 256 up in order.
std::array<CodePoint, 256> byte_characters() {
  std::array<CodePoint, 256> characters{};
  CodePoint next = 256;
  for (CodePoint byte = 0; byte < 256; ++byte) {
    const bool printable = (33 <= byte && byte <= 126) || (161 <= byte && byte != 173);
    characters[static_cast<std::size_t>(byte)] = printable ? byte : next++;
  }
  return characters;
}

const std::array<std::string, 256>& byte_texts() {
  static const std::array<std::string, 256> texts = [] {
    std::array<std::string, 256> all;
    const std::array<CodePoint, 256> characters = byte_characters();
    for (std::size_t byte = 0; byte < 256; ++byte) append_utf8(characters[byte], all[byte]);
    return all;
  }();
  return texts;
}

/// The byte that a character of a vocabulary file stands for; nothing if none.
std::optional<char> byte_of(CodePoint character) {
  static const std::unordered_map<CodePoint, char> bytes = [] {
    std::unordered_map<CodePoint, char> all;
    const std::array<CodePoint, 256> characters = byte_characters();
    for (std::size_t byte = 0; byte < 256; ++byte) all.emplace(characters[byte], static_cast<char>(byte));
    return all;
  }();
  const auto found = bytes.find(character);
  return found == bytes.end() ? std::nullopt : std::optional(found->second);
}

/// What a token of a vocabulary file stands for; one with a character that is no byte stands for itself.
std::string bytes_of(const std::string& written) {
  std::string bytes;
  for (std::string_view rest = written; !rest.empty();) {
    const auto [c, size] = first_character(rest);
    const std::optional<char> byte = byte_of(c);
    if (!byte) return written;
    bytes += *byte;
    rest.remove_prefix(size);
  }
  return bytes;
}

std::string written_form(std::string_view bytes) {
  std::string written;
  for (const char byte : bytes) written += byte_texts()[static_cast<unsigned char>(byte)];
  return written;
}

const json& member(const json& object, const char* key, json::value_t type, const std::string& name) {
  check<FormatError>(object.is_object() && object.contains(key), name, ": has no ", key);
  const json& value = object.at(key);
  check<FormatError>(value.type() == type, name, ": ", key, " is a ", value.type_name(), ", not a ",
                     json(type).type_name());
  return value;
}

/// A member that changes what the tokenizer does must be absent, null, or one of `harmless`.
void require_absent(const json& object, const char* key, const std::vector<json>& harmless,
                    const std::string& name) {
  if (!object.contains(key) || object.at(key).is_null()) return;
  const json& value = object.at(key);
  check<FormatError>(std::ranges::find(harmless, value) != harmless.end(), name, ": ", key, " is ",
                     value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 100),
                     ", which is not supported");
}

bool is_true(const json& object, const char* key) { return object.contains(key) && object.at(key) == true; }

/// Whether a member is an object of type ByteLevel; one that processes ids only moves offsets.
bool is_byte_level(const json& object, const char* key) {
  return object.contains(key) && object.at(key).is_object() && object.at(key).contains("type") &&
         object.at(key).at("type") == "ByteLevel";
}

/// The two sides of a merge, written as ["a", "b"] or as "a b".
std::pair<std::string, std::string> sides_of(const json& merge, std::size_t number, const std::string& name) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const std::string text = merge.is_string() ? merge.get<std::string>() : "";
  const std::size_t space = text.find(' ');
  check<FormatError>(space != std::string::npos && text.find(' ', space + 1) == std::string::npos, name,
                     ": merge ", number, " is not two tokens");
  return {text.substr(0, space), text.substr(space + 1)};
}

std::uint64_t pair_key(Index left, Index right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right);
}

/// The tokens of one word while they are joined.
class Symbols {
 public:
  void push_back(Index id) {
    const Index at = size();
    symbols_.push_back({id, at - 1, at + 1});
  }

  /// Joins neighbours, the pair of lowest rank first and of equal ones the leftmost: in n log n steps, since
  /// a word may be as long as the text. `find_merge(left, right)` points to the rank and the id of two
  /// joined, or nowhere.
  template <class Find>
  void join(Find find_merge) {
    for (Index at = 0; at < size(); ++at) consider(at, find_merge);
    while (!candidates_.empty()) {
      const Candidate next = candidates_.top();
      candidates_.pop();
      Symbol& left = symbol(next.left);
      if (left.id == joined || left.after >= size()) continue;
      Symbol& right = symbol(left.after);
      const auto* merge = find_merge(left.id, right.id);
      if (merge == nullptr || merge->id != next.id) continue;  // a neighbour has changed since
      left.id = next.id;
      right.id = joined;
      left.after = right.after;
      if (left.after < size()) symbol(left.after).before = next.left;
      consider(left.before, find_merge);
      consider(next.left, find_merge);
    }
  }

  void append_to(std::vector<Index>& ids) const {
    for (const Symbol& s : symbols_)
      if (s.id != joined) ids.push_back(s.id);
  }

 private:
  static constexpr Index joined = -1;
  struct Symbol {
    Index id;             // `joined`: part of one before
    Index before, after;  // its neighbours
  };
  struct Candidate {
    Index rank, left, id;
    auto operator<=>(const Candidate&) const = default;  // NOLINT(modernize-use-nullptr): no pointer
  };

  Index size() const { return static_cast<Index>(symbols_.size()); }
  Symbol& symbol(Index at) { return symbols_[static_cast<std::size_t>(at)]; }
  template <class Find>
  void consider(Index left, Find find_merge) {
    if (left < 0 || symbol(left).after >= size()) return;
    if (const auto* merge = find_merge(symbol(left).id, symbol(symbol(left).after).id))
      candidates_.push({merge->rank, left, merge->id});
  }

  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

}  // namespace

Bpe::Bpe(std::string_view text, const std::string& name) {
  const json file = parse_json(text, name);
  check<FormatError>(file.is_object() && file.contains("model"), name,
                     ": is not a tokenizer.json (it has no model)");
  require_absent(file, "normalizer", {}, name);
  if (!is_byte_level(file, "post_processor")) require_absent(file, "post_processor", {}, name);
  read_model(file["model"], name);
  if (file.contains("added_tokens"))
    read_added_tokens(member(file, "added_tokens", json::value_t::array, name), name);
  pre_tokenizer_.emplace(member(file, "pre_tokenizer", json::value_t::object, name), name);
}

Bpe Bpe::load(const std::filesystem::path& path) {
  const FileBytes file = read_file(path);
  return Bpe({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()}, path.string());
}

void Bpe::read_model(const json& model, const std::string& name) {
  check<FormatError>(member(model, "type", json::value_t::string, name) == "BPE", name, ": model is ",
                     model["type"].dump(), ", not BPE");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    require_absent(model, key, {"", 0.0}, name);
  for (const char* key : {"fuse_unk", "byte_fallback"}) require_absent(model, key, {false}, name);
  whole_words_first_ = is_true(model, "ignore_merges");
  read_vocabulary(member(model, "vocab", json::value_t::object, name), name);
  read_merges(member(model, "merges", json::value_t::array, name), name);

  std::optional<Index> unknown;
  if (model.contains("unk_token") && model["unk_token"].is_string())
    unknown = find(model["unk_token"].get<std::string>());
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::optional<Index> own = find(byte_texts()[byte]);
    byte_ids_[byte] = own ? *own : unknown.value_or(-1);
  }
}

void Bpe::read_vocabulary(const json& vocabulary, const std::string& name) {
  for (const auto& [written, id] : vocabulary.items()) add_token(written, id, name);
  check<FormatError>(!tokens_.empty(), name, ": vocab is empty");
}

void Bpe::read_merges(const json& merges, const std::string& name) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = sides_of(merges[rank], rank, name);
    const auto id_of = [&](const std::string& written) {
      const std::optional<Index> id = find(written);
      check<FormatError>(id.has_value(), name, ": merge ", rank, " makes or needs '", written,
                         "', which vocab lacks");
      return *id;
    };
    merges_[pair_key(id_of(left), id_of(right))] = {static_cast<Index>(rank), id_of(left + right)};
  }
}

void Bpe::add_token(const std::string& written, const json& id, const std::string& name) {
  check<FormatError>(id.is_number_unsigned() && id.get<std::uint64_t>() < std::uint64_t{id_limit}, name,
                     ": the id of '", written, "' is ", id.dump(), ", not within [0, ", id_limit, ")");
  const auto at = id.get<std::size_t>();
  const auto [entry, is_new] = ids_.try_emplace(written, static_cast<Index>(at));
  check<FormatError>(is_new || entry->second == static_cast<Index>(at), name, ": '", written,
                     "' has the ids ", entry->second, " and ", at);
  if (at >= tokens_.size()) tokens_.resize(at + 1);
  tokens_[at].bytes = bytes_of(written);
}

void Bpe::read_added_tokens(const json& tokens, const std::string& name) {
  std::array<std::vector<std::pair<std::string, Index>>, 2> found;
  for (const json& entry : tokens) {
    const std::string content = member(entry, "content", json::value_t::string, name);
    check<FormatError>(!content.empty() && entry.contains("id"), name,
                       ": an added token has no content or no id");
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      check<FormatError>(!is_true(entry, key), name, ": ", key, " of the added token '", content,
                         "' is not supported");
    add_token(content, entry["id"], name);
    const Index id = ids_.at(content);
    tokens_[static_cast<std::size_t>(id)].special = is_true(entry, "special");
    found[is_true(entry, "normalized") ? 1 : 0].emplace_back(content, id);
  }
  for (std::size_t pass = 0; pass < found.size(); ++pass) {
    std::ranges::sort(found[pass], std::greater{}, [](const auto& token) { return token.first.size(); });
    for (auto& [content, id] : found[pass]) {
      added_[pass].contents.push_back(std::move(content));
      added_[pass].ids.push_back(id);
    }
  }
}

std::optional<Index> Bpe::find(const std::string& written) const {
  const auto found = ids_.find(written);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const Bpe::Token& Bpe::token(Index id) const {
  static const Token none;
  return 0 <= id && id < size() ? tokens_[static_cast<std::size_t>(id)] : none;
}

std::vector<Index> Bpe::encode(std::string_view text) const {
  std::vector<Index> ids;
  append_text(to_valid_utf8(text), 0, ids);
  return ids;
}

/// The first added token in `text`, and of those that begin there the longest.
std::optional<Bpe::Match> Bpe::find_added(const AddedTokens& tokens, std::string_view text) {
  std::optional<Match> first;
  for (std::size_t i = 0; i < tokens.contents.size(); ++i) {
    const std::string_view content = tokens.contents[i];
    const std::size_t end = first ? std::min(text.size(), first->begin + content.size() - 1) : text.size();
    const std::size_t begin = text.substr(0, end).find(content);
    if (begin != std::string_view::npos && (!first || begin < first->begin))
      first = {begin, content, tokens.ids[i]};
  }
  return first;
}

void Bpe::append_text(std::string_view text, std::size_t pass, std::vector<Index>& ids) const {
  if (pass == added_.size()) {
    for (const std::string& word : pre_tokenizer_->split(text)) append_word(word, ids);
    return;
  }
  while (const std::optional<Match> match = find_added(added_[pass], text)) {
    append_text(text.substr(0, match->begin), pass + 1, ids);
    ids.push_back(match->id);
    text.remove_prefix(match->begin + match->content.size());
  }
  append_text(text, pass + 1, ids);
}

void Bpe::append_word(const std::string& word, std::vector<Index>& ids) const {
  if (whole_words_first_)
    if (const std::optional<Index> id = find(written_form(word))) return ids.push_back(*id);
  Symbols symbols;
  for (const char byte : word)
    if (const Index id = byte_ids_[static_cast<unsigned char>(byte)]; id >= 0) symbols.push_back(id);
  symbols.join([this](Index left, Index right) {
    const auto found = merges_.find(pair_key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  });
  symbols.append_to(ids);
}

std::string Bpe::decode(std::span<const Index> ids, SpecialTokens special) const {
  StreamDecoder decoder(*this, special);
  std::string text;
  for (const Index id : ids) text += decoder.push(id);
  return text += decoder.finish();
}

std::string StreamDecoder::push(Index id) {
  const bool skipped = special_ == SpecialTokens::skip && tokenizer_->is_special(id);
  return skipped ? "" : stream_.push(tokenizer_->bytes(id));
}

}  // namespace attn::examples
