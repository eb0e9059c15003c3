/** The page: asks for a token, reads the document again and again, and shows it. */

import { K8s } from '@kinvolk/headlamp-plugin/lib';
import { Loader, SectionBox } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { Alert, Box, Button, TextField, Typography } from '@mui/material';
import { FormEvent, useEffect, useState } from 'react';
import { UiOverview } from './api';
import Overview from './Overview';
import { Connection, connections, readOverview } from './read';

const DEFAULT_NAMESPACE = 'ttl-after-finished';

export default function FinishedObjects() {
  const cluster = K8s.useCluster();
  // The key makes a new page for another cluster, so that it shows nothing of the former one.
  return cluster ? <ClusterPage key={cluster} cluster={cluster} /> : null;
}

function ClusterPage({ cluster }: { cluster: string }) {
  const [connection, setConnection] = useState(connections.get(cluster));
  const [found, setFound] = useState<UiOverview>();
  const [problem, setProblem] = useState('');

  useEffect(() => {
    if (!connection) {
      return;
    }
    let isShown = true;
    let timer: number | undefined;
    async function read(current: Connection) {
      let seconds = 60;
      try {
        const next = await readOverview(cluster, current);
        if (!isShown) {
          return;
        }
        setFound(next);
        setProblem('');
        seconds = next.refreshSeconds;
      } catch (error) {
        if (!isShown) {
          return;
        }
        setFound(undefined);
        setProblem(error instanceof Error ? error.message : String(error));
      }
      timer = window.setTimeout(read, seconds * 1000, current);
    }
    read(connection);
    return () => {
      isShown = false;
      window.clearTimeout(timer);
    };
  }, [cluster, connection]);

  function connect(next?: Connection) {
    if (next) {
      connections.set(cluster, next);
    } else {
      connections.delete(cluster);
    }
    setFound(undefined);
    setProblem('');
    setConnection(next);
  }

  return (
    <SectionBox title="Finished objects">
      {problem && <Alert severity="error">{problem}</Alert>}
      {connection ? (
        <Button onClick={() => connect()}>Forget the token</Button>
      ) : (
        <ConnectionForm onConnect={connect} />
      )}
      {connection && !found && !problem && <Loader title="Reading the finished objects" />}
      {found && <Overview found={found} />}
    </SectionBox>
  );
}

function ConnectionForm({ onConnect }: { onConnect: (connection: Connection) => void }) {
  const [namespace, setNamespace] = useState(DEFAULT_NAMESPACE);
  const [token, setToken] = useState('');

  function submit(event: FormEvent) {
    event.preventDefault();
    onConnect({ namespace: namespace.trim(), token: token.trim() });
  }

  return (
    <Box component="form" onSubmit={submit} display="flex" flexDirection="column" gap={2} maxWidth="40rem">
      <Typography>
        Paste a token of a user of this cluster. The page shows what this user may list. It keeps the token in memory until
        the tab is closed or reloaded.
      </Typography>
      <TextField
        label="Namespace of the installation"
        value={namespace}
        onChange={event => setNamespace(event.target.value)}
        inputProps={{ pattern: '[a-z0-9\\-]+' }}
        required
      />
      <TextField
        label="Token"
        type="password"
        autoComplete="off"
        value={token}
        onChange={event => setToken(event.target.value)}
        required
      />
      <Button type="submit" variant="contained">
        Show
      </Button>
    </Box>
  );
}
