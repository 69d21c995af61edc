package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/tlsproxy/tlsproxy/session"
)

// levelRefused is below what operators see by default: what is refused here
// did no harm, and whoever sends it could fill the log.
const levelRefused = slog.LevelDebug

func requestAttrs(r *http.Request) []slog.Attr {
	return []slog.Attr{
		slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.String("host", r.Host),
		slog.String("origin", r.Header.Get("Origin")),
		slog.String("remote", r.RemoteAddr),
	}
}

// reload answers when the new configuration is in force (200) or was refused
// and the old one serves on (422).
func (h *handler) reload(w http.ResponseWriter, r *http.Request) {
	h.log.LogAttrs(r.Context(), slog.LevelInfo, "reload requested", slog.String("remote", r.RemoteAddr))
	// A client that goes away must not stop a reload half-way.
	if err := h.opts.Reload(context.WithoutCancel(r.Context())); err != nil {
		writeError(w, http.StatusUnprocessableEntity, "not reloaded, the old configuration serves on: "+err.Error())
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"reloaded": true})
}

// quit begins the shutdown and answers before it ends.
func (h *handler) quit(w http.ResponseWriter, r *http.Request) {
	h.log.LogAttrs(r.Context(), slog.LevelInfo, "quit requested", slog.String("remote", r.RemoteAddr))
	h.opts.Quit()
	writeJSON(w, http.StatusAccepted, map[string]any{"quitting": true})
}

// revoked is the answer to a revocation.
type revoked struct {
	Revoked session.Subject `json:"revoked"`
	Warning string          `json:"warning,omitempty"` // in force here, but not everywhere or not for ever, or perhaps not what was meant
}

// revoke ends sessions: 200 when that is in force everywhere, 202 with a
// warning when it is in force here and not yet on other replicas or on disk, or
// when no site has the name now.
func (h *handler) revoke(w http.ResponseWriter, r *http.Request) {
	subject, err := parseSubject(r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit))
		return
	case errors.Is(err, errContentType):
		writeError(w, http.StatusUnsupportedMediaType, err.Error())
		return
	case err != nil:
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	err = h.opts.Revoke(context.WithoutCancel(r.Context()), subject)
	h.logRevocation(r, subject, err)
	unknown := h.unknownSite(subject)
	switch {
	case err == nil && unknown == "":
		writeJSON(w, http.StatusOK, revoked{Revoked: subject})
	case err == nil:
		writeJSON(w, http.StatusAccepted, revoked{Revoked: subject, Warning: unknown})
	case errors.Is(err, session.ErrNotShared), errors.Is(err, session.ErrNotKept):
		writeJSON(w, http.StatusAccepted, revoked{Revoked: subject, Warning: err.Error()})
	default:
		writeError(w, http.StatusBadRequest, "not revoked: "+err.Error())
	}
}

// logRevocation notes who revoked what. An error means that it is in force in
// part, or that it was refused.
func (h *handler) logRevocation(r *http.Request, s session.Subject, err error) {
	level, message := slog.LevelInfo, "sessions revoked"
	attrs := []slog.Attr{slog.String("remote", r.RemoteAddr), slog.String("kind", string(s.Kind))}
	for _, a := range []slog.Attr{slog.String("value", s.Value), slog.String("issuer", s.Issuer), slog.String("serial", s.Serial)} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	switch {
	case errors.Is(err, session.ErrNotShared), errors.Is(err, session.ErrNotKept):
		level, attrs = slog.LevelWarn, append(attrs, slog.Any("err", err))
	case err != nil:
		level, message, attrs = slog.LevelWarn, "revocation refused", append(attrs, slog.Any("err", err))
	}
	h.log.LogAttrs(r.Context(), level, message, attrs...)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client went away; nobody is left to tell
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, map[string]string{"error": text})
}
