#include "up/view.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>

namespace levada::up {
namespace {

std::string text(std::int64_t number) { return std::to_string(number); }

std::string megabytes(std::int64_t bytes) {
  char line[32];
  std::snprintf(line, sizeof line, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return line;
}

std::string bar(std::int64_t part, std::int64_t whole, int width) {
  const double share = whole > 0 ? std::clamp(static_cast<double>(part) / static_cast<double>(whole), 0.0, 1.0) : 0;
  const int filled = static_cast<int>(std::floor(share * width));
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(width - filled), '.') + "]";
}

std::string losses(const TrainerState& trainer) {
  char line[96] = "";
  if (trainer.loss_last) {
    std::snprintf(line, sizeof line, " loss %.3f accept %.2f", *trainer.loss_last, trainer.accept_len.value_or(0));
  }
  return line;
}

std::string roles_line(const RunState& state) {
  std::string line;
  for (const RoleState& role : state.roles()) {
    line += (line.empty() ? "" : "  ") + role.label + " " + role.state;
    if (role.restarts > 0) line += " (restarted " + text(role.restarts) + "x)";
  }
  return line;
}

// "[######....] 12/48 …": distinct samples captured so far stand in the bar.
std::string captures_line(const RunState& state, int width) {
  const std::int64_t recaptures = state.counter("recapture_count"), first = state.captures() - recaptures;
  std::string line = "captures " + bar(first, state.total(), width) + " " + text(first) + "/" + text(state.total());
  if (recaptures > 0) line += " + " + text(recaptures) + " again";
  line += "  live " + text(state.counter("live_refs")) + "/" + text(state.limits().max_live_refs) + " refs " +
          megabytes(state.counter("live_bytes"));
  if (state.captures() == 0 && !state.producer_says().empty()) line += "  " + state.producer_says();
  return line;
}

class TerminalView final : public View {
 public:
  TerminalView(std::FILE* out, int columns) : out_(out), columns_(columns) {}

  void say(const std::string& line) override {
    erase();
    std::fprintf(out_, "%s\n", shown(line, columns() - 1).c_str());
    draw();
  }
  void show(const RunState& state) override {
    std::vector<std::string> lines = picture(state, columns() - 1);
    if (lines == lines_) return;
    erase();
    lines_ = std::move(lines);
    draw();
  }
  void finish(const RunState& state) override {
    show(state);
    lines_.clear();
  }

 private:
  int columns() const {
    if (columns_ > 0) return columns_;
    winsize size{};
    return ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
  }
  void erase() {
    if (!lines_.empty()) std::fprintf(out_, "\033[%zuA\033[J", lines_.size());
  }
  void draw() {
    for (const std::string& line : lines_) std::fprintf(out_, "%s\n", line.c_str());
    std::fflush(out_);
  }

  std::FILE* const out_;
  const int columns_;
  std::vector<std::string> lines_;  // what stands at the bottom now
};

class PlainView final : public View {
 public:
  PlainView(std::FILE* out, double interval_s) : out_(out), interval_s_(interval_s) {}

  void say(const std::string& line) override {
    std::fprintf(out_, "%s\n", shown(line, 1000).c_str());
    std::fflush(out_);
  }
  void show(const RunState& state) override {
    if (state.seconds < next_s_) return;
    const std::string line = one_line(state);
    if (line == last_) return;
    last_ = line;
    next_s_ = state.seconds + interval_s_;
    say(line);
  }
  void finish(const RunState& state) override {
    next_s_ = 0;
    show(state);
  }

 private:
  std::FILE* const out_;
  const double interval_s_;
  double next_s_ = 0;
  std::string last_;
};

}  // namespace

std::string shown(const std::string& text, int columns) {
  std::string line;
  int width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = (byte & 0xC0) == 0x80;  // of a character of several bytes
    if (!continues && ++width > columns) break;
    line += byte < ' ' || byte == 0x7F ? '?' : c;
  }
  return line;
}

std::vector<std::string> picture(const RunState& state, int columns) {
  const int width = std::clamp(columns / 4, 4, 30);
  std::vector<std::string> lines;
  lines.push_back(state.phase + ": " + roles_line(state));
  if (state.phase == "training" || state.captures() > 0) {
    lines.push_back(captures_line(state, width));
    for (const TrainerState& trainer : state.trainers()) {
      char label[16];
      std::snprintf(label, sizeof label, "%-8.12s", trainer.id.c_str());
      std::string line = label + std::string(" ") + bar(trainer.step, trainer.planned_steps, width) + " step " +
                         text(trainer.step) + "/" + text(trainer.planned_steps) + " cursor " + text(trainer.cursor) +
                         "/" + text(state.total()) + losses(trainer);
      if (trainer.lag > 0) line += " lag " + text(trainer.lag);
      lines.push_back(line + " " + trainer.state);
    }
  }
  for (std::string& line : lines) line = shown(line, columns);
  return lines;
}

std::string one_line(const RunState& state) {
  std::string line = state.phase + ": captures " + text(state.captures()) + " live " +
                     text(state.counter("live_refs")) + " refs " + megabytes(state.counter("live_bytes"));
  if (state.captures() == 0 && !state.producer_says().empty()) line += " (" + state.producer_says() + ")";
  for (const TrainerState& trainer : state.trainers()) {
    line += " | " + trainer.id + " step " + text(trainer.step) + "/" + text(trainer.planned_steps) + " cursor " +
            text(trainer.cursor) + losses(trainer);
  }
  return line;
}

std::unique_ptr<View> make_terminal_view(std::FILE* out, int columns) {
  return std::make_unique<TerminalView>(out, columns);
}

std::unique_ptr<View> make_plain_view(std::FILE* out, double interval_s) {
  return std::make_unique<PlainView>(out, interval_s);
}

}  // namespace levada::up
